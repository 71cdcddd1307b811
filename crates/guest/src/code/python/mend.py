# Part "mend": restores what an earlier cell may have closed, replaced or deleted.


def restore():
    """Restores what an earlier cell may have closed, replaced or deleted."""
    global out, err, stdin
    try:
        fstat(0)
    except OSError:
        posix.open("/dev/null", posix.O_RDONLY)
    if not is_same_file(1, kept_out):
        dup2(kept_out, 1)
    if not is_same_file(2, kept_err):
        dup2(kept_err, 2)
    if not is_usable(out):
        out = text_stream(1, "<stdout>")
    if not is_usable(err):
        err = text_stream(2, "<stderr>")
    if stdin is None or stdin.closed:
        stdin = _io.open(0, closefd=False)
    sys.stdout, sys.stderr, sys.stdin = out, err, stdin
    sys.modules = modules
    modules["__main__"] = main
    modules["builtins"] = builtins
    modules["sys"] = sys
    space["__builtins__"] = builtins
    space.pop("__warningregistry__", None)
    for given, now in ((given_builtins, all_builtins), (given_sys, sys_space)):
        if not given.keys() <= now.keys():
            for name in given.keys() - now.keys():
                now[name] = given[name]


def is_usable(stream):
    """Whether a stream works; overrides of its methods are removed."""
    covers = stream.__dict__
    for name in [name for name in covers if name != "mode"]:
        del covers[name]
    if not flush(stream):
        return False
    if not stream.line_buffering:
        stream.reconfigure(line_buffering=True)
    return True


def is_same_file(fd, kept):
    try:
        here, there = fstat(fd), fstat(kept)
    except OSError:
        return False
    return here.st_ino == there.st_ino and here.st_dev == there.st_dev


def text_stream(fd, name):
    raw = _io.FileIO(fd, "w", closefd=False)
    raw.name = name
    buffered = _io.BufferedWriter(raw)
    return _io.TextIOWrapper(buffered, "utf-8", "backslashreplace", line_buffering=True)
