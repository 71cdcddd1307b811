# Part "errors": an exception as a record, trimmed to the parts that its reader can change.

# Longest message and traceback, in characters.
MESSAGE_LIMIT = 10_000
TRACEBACK_LIMIT = 20_000
# Frames shown at the beginning and at the end of one traceback.
FRAMES_HEAD, FRAMES_TAIL = 10, 20
# Library frames shown where the user's own code called them.
LIBRARY_FRAMES = 2
# Packages whose names differ from their modules'.
PACKAGES = {
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "docx": "python-docx",
    "fitz": "pymupdf",
    "jwt": "pyjwt",
    "serial": "pyserial",
    "usb": "pyusb",
    "zmq": "pyzmq",
    "Crypto": "pycryptodome",
}
# Names that projects give to their own modules: packages of these names are somebody else's.
OWN_NAMES = {
    "api", "app", "common", "config", "conftest", "core", "data", "db", "helpers", "lib", "main", "models",
    "server", "settings", "src", "test", "tests", "util", "utils",
}
HEADER = "Traceback (most recent call last):\n"


def tell(error):
    """The exit code of an exception, after reporting it."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None or isinstance(code, int):
            return int(code or 0) & 0xFF
        print(code, file=err)
        return 1
    if not is_driver():
        print(traceback_of(error), file=err)
        return 1
    try:
        tell_error(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        name, _, value = plain_error(error).partition(": ")
        record("error", {"name": quote(name), "value": quote(value), "traceback": quote(plain_error(error))})
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def tell_error(error):
    # First by ourselves: the traceback module swallows an interrupt if str() hangs.
    try:
        message = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as worse:
        message = "<its message cannot be shown: str() raised %s>" % type(worse).__name__
    try:
        text = traceback_of(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Out of memory, or the code has changed what this needs.
        text = bare_traceback(error)
    fields = {"name": quote(type(error).__name__), "value": quote(shorten(message, MESSAGE_LIMIT))}
    fields["traceback"] = quote(text)
    if isinstance(error, SyntaxError):
        hint_at_magic(error)
    if isinstance(error, ModuleNotFoundError):
        hint_at_package(error.name)
    record("error", fields)


def bare_traceback(error):
    """Without the help of any module."""
    lines, at = [], error.__traceback__
    while at is not None and len(lines) < FRAMES_HEAD + FRAMES_TAIL:
        code = at.tb_frame.f_code
        if code.co_filename.startswith("<cell "):
            lines.append('  File "%s", line %d, in %s\n' % (code.co_filename, at.tb_lineno, code.co_name))
        at = at.tb_next
    return (HEADER if lines else "") + "".join(lines) + plain_error(error)


def traceback_of(error):
    import traceback

    show_sources()
    if isinstance(error, SyntaxError):
        fill_in_line(error)
    told = traceback.TracebackException(type(error), error, error.__traceback__, lookup_lines=False)
    trim(told, set(), False)
    lines = list(told.format())
    # Without a frame the header means nothing.
    kept = [
        line
        for line, after in zip(lines, lines[1:] + [""])
        if not (line.endswith(HEADER) and not after.lstrip(" |+-").startswith("File"))
    ]
    import re

    # A placeholder for omitted frames is not a frame itself.
    text = re.sub('File "(… [^"\\n]*)", line 0, in …', r"\1", "".join(kept).rstrip("\n"))
    if len(text) > TRACEBACK_LIMIT:
        half = TRACEBACK_LIMIT // 2
        text = "%s\n… %d characters left out …\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
    return text


def show_sources():
    """The traceback module reads lines from there; the code may have emptied it."""
    import linecache

    for name, code in sources.items():
        if name not in linecache.cache:
            linecache.cache[name] = cache_entry(name, code)


def fill_in_line(error):
    """Errors found after parsing come without their line."""
    lines = sources.get(error.filename, "").split("\n")
    if error.text is None and error.lineno and error.lineno <= len(lines):
        error.text = lines[error.lineno - 1] + "\n"


def trim(told, seen, is_before):
    """Keeps the user's own frames and the ends of the library frames beneath them. An earlier exception that stays
    inside a library is reduced to its message."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    if told.stack is not None:
        frames = [frame for frame in told.stack if not frame.filename.startswith(("<driver ", "<string>"))]
        own = [at for at, frame in enumerate(frames) if is_own(frame.filename)]
        if own:
            frames = frames[own[0] :]
        elif is_before:
            frames = []
        frames = without_most_of_libraries(frames)
        n_between = len(frames) - FRAMES_HEAD - FRAMES_TAIL
        if n_between > 1 and not is_repetition(frames):
            frames = frames[:FRAMES_HEAD] + [stand_in("… %d frames left out …" % n_between)] + frames[-FRAMES_TAIL:]
        told.stack[:] = frames
    trim(told.__cause__, seen, True)
    trim(told.__context__, seen, True)
    for inner in getattr(told, "exceptions", None) or ():
        trim(inner, seen, False)


def is_own(filename):
    """Cells, and files that are not of a library."""
    if filename.startswith("<") or filename.endswith((".pyx", ".pxi", ".pxd")):
        return filename.startswith("<cell ")
    library = getattr(modules.get("os"), "__file__", None) or ""
    is_of_python = bool(library) and filename.startswith(library.rpartition("/")[0] + "/")
    return not is_of_python and "/site-packages/" not in filename and "/dist-packages/" not in filename


def without_most_of_libraries(frames):
    kept, run = [], []
    for frame in frames:
        if not is_own(frame.filename):
            run.append(frame)
            continue
        kept += end_of(run)
        kept.append(frame)
        run = []
    return kept + end_of(run)


def end_of(run):
    n_more = len(run) - LIBRARY_FRAMES
    return [stand_in("… %d more of libraries" % n_more)] + run[-LIBRARY_FRAMES:] if n_more > 0 else run


def stand_in(text):
    from traceback import FrameSummary

    return FrameSummary(text, 0, "…", lookup_line=False, line="")


def is_repetition(frames):
    """Whether the formatter itself will say that a line was repeated."""
    places = {(frame.filename, frame.lineno) for frame in frames}
    return len(places) <= FRAMES_HEAD + FRAMES_TAIL and any(
        (a.filename, a.lineno) == (b.filename, b.lineno) for a, b in zip(frames[-2:], frames[-3:-1])
    )


def hint_at_magic(error):
    line = (error.text or "").strip()
    if line.startswith(("!", "%")) or line.endswith("?"):
        warn(
            "Lines that begin with ! or % or end with ? are IPython's and not Python: run commands with subprocess.run, "
            "leave out %matplotlib (figures are shown by themselves), use help()."
        )


def hint_at_package(name):
    """For a missing module, not for one that lacks a part of itself."""
    if not name or not name.isidentifier() or name in getattr(sys, "stdlib_module_names", ()):
        return
    place = place_of_own(name)
    if place:
        warn(
            "The module %s is in %s, where Python does not look; begin with: import sys; sys.path.insert(0, %r)."
            % (name, place, place)
        )
    elif name not in OWN_NAMES:
        warn(
            "The module %s is not installed; if it is a package and no file of yours, install the pip package %s."
            % (name, PACKAGES.get(name, name))
        )


def place_of_own(name):
    """The directory around the working directory that holds a module; nothing if none does."""
    import os

    try:
        place = os.getcwd()
        for _ in range(4):
            if os.path.isfile(os.path.join(place, name + ".py")) or os.path.isdir(os.path.join(place, name)):
                return place
            above = os.path.dirname(place)
            if above in ("/", place):
                break
            place = above
    except OSError:
        pass
    return None
