# Part "errors": an exception as a record, trimmed to what its reader can change.

# Longest message and traceback, in characters.
MESSAGE_LIMIT = 10_000
TRACEBACK_LIMIT = 20_000
# Frames of one traceback that are shown at its beginning and at its end.
FRAMES_HEAD, FRAMES_TAIL = 10, 20
HEADER = "Traceback (most recent call last):\n"


def tell(error):
    """The exit code that an exception stands for, after telling of it."""
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
    # First by ourselves: the traceback module swallows an interrupt when str() hangs.
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
    trim(told, set())
    lines = list(told.format())
    # Without a frame the header stands for nothing.
    kept = [
        line
        for line, after in zip(lines, lines[1:] + [""])
        if not (line.endswith(HEADER) and not after.lstrip(" |+-").startswith("File"))
    ]
    text = "".join(kept).rstrip("\n")
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


def trim(told, seen):
    """Drops the frames before the first of a cell and the driver's own, and the middle of long ones."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    if told.stack is not None:
        frames = list(told.stack)
        cells = [at for at, frame in enumerate(frames) if frame.filename.startswith("<cell ")]
        frames = [
            frame for frame in frames[cells[0] if cells else 0 :] if not frame.filename.startswith(("<driver ", "<string>"))
        ]
        n_between = len(frames) - FRAMES_HEAD - FRAMES_TAIL
        if n_between > 1 and not is_repetition(frames):
            middle = frames[FRAMES_HEAD]
            middle = type(middle)("… %d frames left out …" % n_between, 0, "…", lookup_line=False, line="")
            frames = frames[:FRAMES_HEAD] + [middle] + frames[-FRAMES_TAIL:]
        told.stack[:] = frames
    trim(told.__cause__, seen)
    trim(told.__context__, seen)
    for inner in getattr(told, "exceptions", None) or ():
        trim(inner, seen)


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
