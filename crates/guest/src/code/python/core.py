# The driver: reads cells from its channel, runs them in __main__, reports their results. This part is compiled at every
# start, so it is small and imports only built-in modules. The other parts are compiled into the same namespace on first
# use. Nothing here trusts what a cell may have changed: everything used later is bound to a name of ours now.
import _io
import _signal
import _socket
import _thread
import builtins
import posix
import sys

# Longest text of one value, in characters; longer ones are cut.
TEXT_LIMIT = 100_000
# Most items of one list, tuple, set or dict that are shown.
ITEM_LIMIT = 1_000
# Most records of one cell besides its error.
RECORD_LIMIT = 1_000
# Sources of old cells that are kept for tracebacks, and their total characters.
SOURCE_LIMIT = 1_000
SOURCE_CHARACTERS = 4 << 20
# Lowest recursion limit that the driver needs to continue.
RECURSION_LEAST = 200
INTERRUPTED = 130

ONLY_AST = 0x400
TOP_LEVEL_AWAIT = 0x2000
COROUTINE = 0x80
FUTURE_ANNOTATIONS = 0x1000000
# Called at the top of a cell without await, these need a running loop.
LOOP_CALLS = {"create_task", "ensure_future", "get_running_loop", "current_task"}

SIGINT = _signal.SIGINT
signal = _signal.signal
raise_interrupt = _signal.default_int_handler
getpid, fstat, dup2, close, write_out = posix.getpid, posix.fstat, posix.dup2, posix.close, posix.write
unset_trace, unset_profile = sys.settrace, sys.setprofile
recursion_limit, set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit
modules = sys.modules
main = modules["__main__"]
space = vars(main)
all_builtins, sys_space = vars(builtins), vars(sys)
main_thread = _thread.get_ident()
sending = _thread.allocate_lock()
loaded = {"core"}
sources = {}
source_characters = 0
compile_flags = TOP_LEVEL_AWAIT
is_armed = False
is_interrupted = False
n_records = 0
# Figures that were shown in this cell other than by plt.show().
shown = set()


def part(name):
    """Compiles a part on first use."""
    if name not in loaded:
        exec(compile(parts[name], "<driver %s>" % name, "exec"), globals())
        loaded.add(name)


def out_of_the_way(fd):
    """A copy of a descriptor that code will not hit by chance and children do not inherit."""
    for wanted in (250, 120, 60, 30):
        for number in range(wanted, wanted + 10):
            try:
                fstat(number)
            except OSError:
                try:
                    return dup2(fd, number, False)
                except OSError:
                    break
    return posix.dup(fd)


def take_channel(fd):
    global channel, channel_socket
    channel = out_of_the_way(fd)
    close(fd)
    channel_socket = _socket.socket(fileno=channel)


def flush(stream):
    try:
        _io.TextIOWrapper.flush(stream)
        return True
    except BaseException:
        return False


def note_interrupt(number, frame):
    """Handles SIGINT outside of cells: it counts for the next cell only if that has already arrived."""
    global is_interrupted
    if is_armed:
        is_interrupted = True
        return
    try:
        is_interrupted = bool(channel_socket.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT))
    except OSError:
        pass


def arm():
    global is_interrupted
    signal(SIGINT, raise_interrupt)
    if is_interrupted:
        is_interrupted = False
        raise KeyboardInterrupt


def disarm():
    global is_armed, is_interrupted
    while True:
        try:
            signal(SIGINT, note_interrupt)
            break
        except KeyboardInterrupt:
            pass
    is_armed = is_interrupted = False


def send(line):
    """Sends a whole line: an interrupt waits until it is sent, or the channel would be garbled."""
    global is_interrupted
    in_main = is_armed and _thread.get_ident() == main_thread
    before = signal(SIGINT, note_interrupt) if in_main else None
    with sending:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[write_out(channel, rest) :]
        except OSError as error:
            write_out(2, b"the driver's channel is gone (%d): the interpreter ends\n" % error.errno)
            posix._exit(1)
    if in_main:
        signal(SIGINT, before)
        if is_interrupted:
            is_interrupted = False
            raise KeyboardInterrupt


def quote(text):
    """JSON of a string, in ASCII."""
    if text.isascii():
        if text.isprintable() and '"' not in text and "\\" not in text:
            return '"' + text + '"'
    else:
        # Half of a surrogate pair is not text in JSON.
        text = text.encode("utf-8", "backslashreplace").decode()
    return quote_any(text)


def quote_any(text):
    global quote_any
    from _json import encode_basestring_ascii as quote_any

    return quote_any(text)


def record(kind, fields):
    """Sends a record, after the output before it. `fields`: names and JSON."""
    global n_records
    n_records += 1
    if n_records > RECORD_LIMIT and kind != "error":
        if n_records > RECORD_LIMIT + 1:
            return
        kind = "warning"
        fields = {"message": '"The cell showed more than %d things; the rest was left out."' % RECORD_LIMIT}
    flush(out)
    flush(err)
    body = "".join(',"%s":%s' % field for field in fields.items())
    send(('r{"type":"%s"%s}\n' % (kind, body)).encode())


def warn(message):
    record("warning", {"message": quote(message)})


def is_driver():
    """Whether this is the interpreter itself and not a process that a cell forked."""
    return getpid() == pid


def shorten(text, limit=TEXT_LIMIT):
    if len(text) <= limit:
        return text
    return "%s… %d more characters" % (text[:limit], len(text) - limit)


def text_of(value):
    """The text of repr(), without building the whole text of something huge."""
    kind = type(value)
    try:
        if (kind is str or kind is bytes) and len(value) > TEXT_LIMIT:
            return "%s… %d more %s" % (
                repr(value[:TEXT_LIMIT]),
                len(value) - TEXT_LIMIT,
                "characters" if kind is str else "bytes",
            )
        if kind in (list, tuple, dict, set, frozenset) and len(value) > ITEM_LIMIT:
            part("show")
            return shorten(text_of_many(value))
        return shorten(str(repr(value)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return "<%s object whose repr raised %s>" % (kind.__name__, plain_error(error))


def plain_error(error):
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = ""
    return "%s: %s" % (name, shorten(text, 1000).rstrip(".")) if text else name


def tell_value(value):
    all_builtins["_"] = value
    if type(value) in (int, float, bool, str, bytes, complex):
        record("result", {"data": '{"text/plain":%s}' % quote(text_of(value))})
    else:
        part("show")
        show("result", value)


def display(*values, **options):
    """Shows values in the forms that they have: pictures, HTML, text."""
    part("show")
    for value in values:
        show("display", value, raw=options.get("raw", False))


def no_input(prompt=""):
    raise EOFError("input() has nobody to answer it: put the value into the code (asked was %r)" % (prompt,))


def no_breakpoint(*args, **options):
    warn("breakpoint() was passed over: there is nobody at a debugger. Print what you want to see.")


class Watch:
    """Called for every import, for the few modules that expect a terminal, a screen or a file for each source."""

    names = {"linecache", "getpass", "matplotlib.pyplot", "plotly.io", "warnings"}
    names |= {"IPython.display", "IPython.core.display_functions"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in cls.names:
            part("watch")
            return watched_spec(name, path, target)


def cache_entry(name, code):
    """As linecache keeps a file: every line has an end, or carets would be misplaced."""
    return len(code), None, (code if code.endswith("\n") else code + "\n").splitlines(True), name


def keep_source(name, code):
    global source_characters
    sources[name] = code
    source_characters += len(code)
    cache = getattr(modules.get("linecache"), "cache", None)
    while len(sources) > SOURCE_LIMIT or (source_characters > SOURCE_CHARACTERS and len(sources) > 1):
        oldest = next(iter(sources))
        source_characters -= len(sources.pop(oldest))
        if type(cache) is dict:
            cache.pop(oldest, None)
    if type(cache) is dict:
        cache[name] = cache_entry(name, code)


def is_hushed(code, last):
    """Whether a semicolon follows the last expression, which is then not shown."""
    if ";" not in code:
        return False
    lines = code.split("\n")
    end = lines[last.end_lineno - 1].encode()[last.end_col_offset :] if last.end_lineno <= len(lines) else b""
    return end.lstrip().startswith(b";")


def compiled(name, code):
    """The cell as code objects; the second of two gives the value."""
    global compile_flags
    tree = compile(code, name, "exec", compile_flags | ONLY_AST, True)
    codes = []
    last = tree.body[-1] if tree.body else None
    has_value = type(last).__name__ == "Expr" and not is_hushed(code, last)
    if has_value:
        tree.body.pop()
    if tree.body:
        codes.append(compile(tree, name, "exec", compile_flags, True))
        compile_flags |= codes[0].co_flags & FUTURE_ANNOTATIONS
    if has_value:
        from _ast import Expression

        codes.append(compile(Expression(last.value), name, "eval", compile_flags, True))
    return codes


def needs_loop(codes):
    if any(code.co_flags & COROUTINE for code in codes):
        return True
    names = {name for code in codes for name in code.co_names}
    return not LOOP_CALLS.isdisjoint(names) and "run_until_complete" not in names and "run" not in names


def run(name, code):
    codes = compiled(name, code)
    if needs_loop(codes):
        part("loop")
        value = run_in_loop(codes)
    else:
        value = None
        for code in codes:
            value = eval(code, space)
    if value is not None:
        if is_driver():
            tell_value(value)


def after_run():
    """Finishes a cell: its own streams to flush, figures to show. Still the cell's time: it can be interrupted."""
    unset_trace(None)
    unset_profile(None)
    for stream in (sys_space.get("stdout"), sys_space.get("stderr")):
        if stream is not out and stream is not err:
            try:
                stream.flush()
            except Exception:
                pass
    if "matplotlib.pyplot" in modules and is_driver():
        part("figures")
        show_figures()


def calm():
    """After a cell: no tracing, room to recurse."""
    for unset in (unset_profile, unset_trace):
        try:
            unset(None)
        except BaseException:
            pass
    if recursion_limit() < RECURSION_LEAST:
        set_recursion_limit(1000)


def attempt(name, code):
    """Runs a cell to its exit code. User code can run anywhere in it, so all of it can be interrupted."""
    failure = None
    try:
        arm()
        run(name, code)
    except BaseException as error:
        calm()
        failure = error
    try:
        if not isinstance(failure, KeyboardInterrupt):
            after_run()
    except BaseException as error:
        calm()
        if failure is None or isinstance(error, KeyboardInterrupt):
            failure = error
    try:
        if failure is None:
            return 0
        part("errors")
        return tell(failure)
    finally:
        # Otherwise it would hold its frames, and everything they hold, until the next collection.
        failure = None


def tell_somehow(error):
    try:
        part("errors")
        return tell(error)
    except BaseException:
        # No memory, or an exception that cannot be accessed.
        name = quote(type(error).__name__)
        record("error", {"name": name, "value": '""', "traceback": name})
        return 1


def cell(number, code):
    global n_records
    if "mend" in loaded:
        restore()
    name = "<cell %d>" % number
    keep_source(name, code)
    n_records = 0
    shown.clear()
    try:
        status = attempt(name, code)
        disarm()
    except BaseException as error:
        # An interrupt that came while another exception was reported, or worse.
        disarm()
        calm()
        # That other one may be what hangs when it is shown.
        error.__context__ = None
        status = tell_somehow(error)
    calm()
    flush(out)
    flush(err)
    if not is_driver():
        posix._exit(status)
    send(b'd{"cell":%d,"code":%d}\n' % (number, status))
    # From now on something may be broken. Compiled while nobody waits, and while there is memory for it.
    part("mend")
    part("errors")


def next_frame():
    """The type, the payload and the descriptors of the next frame; nothing at the end."""
    global is_armed
    fds = []
    head = receive(4, fds)
    # From here on an interrupt is meant for the new frame.
    is_armed = True
    length = int.from_bytes(head, "little")
    frame = receive(length, fds) if length else b""
    return frame[:1], frame[1:], fds


def receive(n, fds):
    data = bytearray()
    while len(data) < n:
        # Descriptors are lost if they arrive at a call that does not take them.
        piece, extra, _, _ = channel_socket.recvmsg(min(n - len(data), 1 << 16), 64)
        if not piece:
            break
        data += piece
        for level, kind, numbers in extra:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += memoryview(numbers[: len(numbers) // 4 * 4]).cast("i").tolist()
    return bytes(data)


def after_foreign_fork():
    """In a process that a cell forked: it must not hold, nor write to, the driver's channel."""
    global channel
    # Only once: in a process that this one forks, the number may belong to something else.
    if not is_branching and channel >= 0:
        fd, channel = channel, -1
        try:
            close(fd)
        except OSError:
            pass


def serve():
    send(b"i\n")
    while True:
        kind, payload, fds = next_frame()
        if kind == b"C":
            cell(int.from_bytes(payload[:8], "little"), payload[8:].decode("utf-8", "backslashreplace"))
        elif kind == b"F":
            disarm()
            part("fork")
            fork(payload[:1] != b"\0", fds)
        elif not kind:
            return


def set_up_environment():
    from os import environ

    # Pictures need no display, here and in child processes.
    environ.setdefault("MPLBACKEND", "agg")
    if "MPLCONFIGDIR" not in environ and not posix.access(environ.get("HOME") or "/", posix.W_OK):
        environ["MPLCONFIGDIR"] = "/tmp/.matplotlib-%d" % posix.getuid()


is_branching = False
pid = getpid()
signal(SIGINT, note_interrupt)
take_channel(3)
kept_out, kept_err = out_of_the_way(1), out_of_the_way(2)
out, err, stdin = sys.stdout, sys.stderr, sys.stdin
for stream in (out, err):
    stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
all_builtins["display"] = display
all_builtins["input"] = no_input
sys.breakpointhook = no_breakpoint
given_builtins, given_sys = dict(all_builtins), dict(sys_space)
sys.meta_path.insert(0, Watch)
if "warnings" in modules:
    part("watch")
    change_warnings(modules["warnings"])
posix.register_at_fork(after_in_child=after_foreign_fork)
set_up_environment()
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, {SIGINT})
