# Part "hazards": the state of a live interpreter that two processes cannot share. Cheap checks first (the kernel's
# lists of descriptors, threads and maps); the objects are searched only if those show that there is something to find.
import stat as stat_bits
from os import listdir
from time import sleep

# Most things of one kind that are named.
NAMED = 5
# Native thread pools that restart, or are recreated, by themselves after a fork.
SAFE_POOLS = (b"openblas", b"mkl_rt", b"libblis")
# Those whose locks stay taken.
UNSAFE_POOLS = ("polars", "tensorflow", "jaxlib", "grpc", "ray", "torch", "duckdb")
# How often, and how many seconds apart, threads are counted again before they count as alive.
LOOKS, BETWEEN_LOOKS = 50, 0.001
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ANONYMOUS = {"eventpoll": "a poll object", "eventfd": "an event counter", "inotify": "a watch of files"}


def examine(passed):
    """Returns reasons to refuse, warnings, and the files whose position must be separated."""
    reasons, warnings, files = [], [], []
    loops = idle_loops(reasons)
    stop_helpers(loops)
    maps = slurp("/proc/self/maps")
    examine_threads(maps, reasons)
    examine_children(reasons)
    known = {0, 1, 2, channel, kept_out, kept_err} | passed
    for each in loops:
        known |= {each._selector.fileno(), each._ssock.fileno(), each._csock.fileno()}
    examine_descriptors(known, reasons, warnings, files)
    examine_maps(maps, reasons, warnings)
    examine_gpu(reasons)
    examine_timers(warnings)
    if any(flags & (posix.O_WRONLY | posix.O_RDWR) for _, _, _, flags in files):
        flush_files(reasons)
    return reasons, warnings, files


def slurp(path):
    try:
        with _io.open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def named(things):
    things = [str(thing) for thing in things]
    more = len(things) - NAMED
    return ", ".join(things[:NAMED]) + (" and %d more" % more if more > 0 else "")


def idle_loops(reasons):
    """Event loops that both can have; others are refused."""
    global branch_loops
    found = [globals().get("loop")]
    if "asyncio.events" in modules:
        policy = getattr(modules["asyncio.events"], "_event_loop_policy", None)
        found.append(getattr(getattr(policy, "_local", None), "_loop", None))
    branch_loops = []
    for each in found:
        if each is None or each.is_closed() or each in branch_loops:
            continue
        pending = modules["asyncio"].all_tasks(each)
        if pending:
            names = named(getattr(task.get_coro(), "__qualname__", task) for task in pending)
            reasons.append("Tasks of the event loop wait (%s): both contexts would finish them. Await or cancel them." % names)
        if isinstance(each, modules["asyncio"].SelectorEventLoop) and each._ssock is not None:
            branch_loops.append(each)
    return branch_loops


def stop_helpers(loops):
    """Threads that their owners restart when they need them."""
    bar = getattr(modules.get("tqdm"), "tqdm", None)
    if getattr(bar, "monitor", None) is not None:
        bar.monitor.exit()
        bar.monitor = None
    for each in loops:
        pool = each._default_executor
        if pool is not None and becomes_idle(pool):
            each._default_executor = None
            pool.shutdown(wait=True)


def becomes_idle(pool):
    """A worker returns its result before it counts itself as idle."""
    for _ in range(LOOKS):
        idle = getattr(getattr(pool, "_idle_semaphore", None), "_value", 0)
        if pool._work_queue.empty() and idle >= len(pool._threads):
            return True
        sleep(BETWEEN_LOOKS)
    return False


def examine_threads(maps, reasons):
    running = [ident for ident in sys._current_frames() if ident != main_thread]
    if running:
        known = getattr(modules.get("threading"), "_active", {})
        names = named(getattr(known.get(ident), "name", "thread %d" % ident) for ident in running)
        reasons.append("Threads are running (%s): a fork takes only the one that forks. Join them." % names)
    has_safe_pool = any(name in maps for name in SAFE_POOLS)
    n_native = native_threads(len(running) + 1, 1 if has_safe_pool else LOOKS)
    pools = [name for name in UNSAFE_POOLS if name in modules]
    has_openmp = b"libgomp" in maps or b"libiomp" in maps or b"libomp" in maps
    # It is often loaded without a thread of its own (Pillow bundles it).
    if has_openmp and n_native > 0 and n_native != openblas_threads(maps):
        pools.append("OpenMP")
    if n_native > 0 and (pools or not has_safe_pool):
        of = "probably of %s" % named(pools) if pools else "not started by Python"
        reasons.append("%d native threads are running (%s): they and their locks would be lost." % (n_native, of))


def native_threads(n_known, looks):
    """Threads that Python does not know; a joined one may still be exiting."""
    for look in range(looks):
        n_native = len(listdir("/proc/self/task")) - n_known
        if n_native <= 0:
            break
        if look + 1 < looks:
            sleep(BETWEEN_LOOKS)
    return n_native


def openblas_threads(maps):
    """The number of threads in the running pools of OpenBLAS; none for one that is built on OpenMP."""
    paths = {line.split(None, 5)[5].decode() for line in maps.split(b"\n") if b"openblas" in line}
    try:
        import ctypes

        # By address: a library also answers for those that it was linked with.
        pools = dict(pool for path in paths for pool in pools_of(ctypes, ctypes.CDLL(path)))
    except Exception:
        return 0
    return sum(pools.values())


def pools_of(ctypes, library):
    for name in ("openblas_get_%s", "openblas_get_%s64_", "scipy_openblas_get_%s", "scipy_openblas_get_%s64_"):
        count = getattr(library, name % "num_threads", None)
        if count is not None:
            is_of_openmp = getattr(library, name % "parallel")() == 2
            yield ctypes.cast(count, ctypes.c_void_p).value, 0 if is_of_openmp else count() - 1


def examine_children(reasons):
    running = children()
    if any(is_over for _, _, is_over in running):
        collect_ended()
        running = children()
    alive = ["%s, pid %d" % (name, child) for child, name, is_over in running if not is_over]
    if alive:
        reasons.append("Child processes are running (%s): only this one can wait for them. End them." % named(alive))


def children():
    """Pid, name and whether it is only waiting to be reaped."""
    try:
        posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
    except OSError:
        return []
    found = []
    for task in listdir("/proc/self/task"):
        for child in slurp("/proc/self/task/%s/children" % task).split():
            name, _, rest = slurp("/proc/%d/stat" % int(child)).partition(b"(")[2].rpartition(b")")
            found.append((int(child), name.decode("utf-8", "replace"), rest[1:2] in (b"Z", b"X", b"")))
    return found


def collect_ended():
    """Asks the objects of ended processes for their exit codes while that is possible."""
    popen = getattr(modules.get("subprocess"), "Popen", None)
    if popen is not None:
        for value in gc.get_objects():
            if isinstance_safely(value, popen):
                value.poll()
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].active_children()


def isinstance_safely(value, kinds):
    """Without asking proxies and the like, which run code when asked."""
    return issubclass(type(value), kinds)


def examine_descriptors(known, reasons, warnings, files):
    shared = {}
    for name in listdir("/proc/self/fd"):
        fd = int(name)
        if fd in known:
            continue
        try:
            mode = fstat(fd).st_mode
            path = posix.readlink("/proc/self/fd/" + name)
        except OSError:
            # The list itself, gone by now.
            continue
        if stat_bits.S_ISREG(mode):
            examine_file(fd, path, reasons, warnings, files)
        else:
            thing = what_is(fd, mode, path)
            if thing:
                shared.setdefault(thing, []).append(fd)
    for thing, fds in shared.items():
        reasons.append("%s is open (descriptor %s): both contexts would use it. Close it." % (thing, named(fds)))


def what_is(fd, mode, path):
    """Why it cannot be shared; nothing if it can."""
    if stat_bits.S_ISSOCK(mode):
        return "A socket" + peer_of(fd)
    if stat_bits.S_ISFIFO(mode):
        return "A pipe" if path.startswith("pipe:") else "The pipe %s" % path
    if stat_bits.S_ISDIR(mode) or path in HARMLESS_DEVICES:
        return None
    if path.startswith("/dev/nvidia"):
        return "The GPU (%s)" % path
    if path.startswith(("/dev/pts/", "/dev/ptmx", "/dev/tty")):
        return "The terminal %s" % path
    if path.startswith("anon_inode:"):
        kind = path.partition(":")[2].strip("[]")
        return ANONYMOUS.get(kind, "a kernel object (%s)" % kind).capitalize()
    return "The device %s" % path


def peer_of(fd):
    """The peer of a socket, if it is known."""
    try:
        other = _socket.socket(fileno=posix.dup(fd))
    except OSError:
        return ""
    try:
        address = other.getpeername()
        return " to %s:%s" % address[:2] if isinstance(address, tuple) else " to %s" % address if address else ""
    except OSError:
        return ""
    finally:
        other.close()


def examine_file(fd, path, reasons, warnings, files):
    info = slurp("/proc/self/fdinfo/%d" % fd)
    fields = dict(line.partition(b":")[::2] for line in info.split(b"\n"))
    flags = int(fields.get(b"flags", b"0"), 8)
    if flags & (posix.O_WRONLY | posix.O_RDWR):
        if is_database(fd, path):
            reasons.append("A database of sqlite3 is open (%s): a connection cannot be shared. Close it." % path)
            return
        warnings.append("%s is open for writing (descriptor %d): both contexts write to one file." % (path, fd))
    if b"\nlock:" in info:
        warnings.append("The lock on %s stays with the context that was forked." % path)
    files.append((fd, path, int(fields.get(b"pos", b"0")), flags))


def is_database(fd, path):
    if "_sqlite3" not in modules:
        return False
    if path.endswith(("-journal", "-wal", "-shm")):
        return True
    try:
        return posix.pread(fd, 16, 0) == b"SQLite format 3\0"
    except OSError:
        return False


def examine_maps(maps, reasons, warnings):
    for line in maps.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 5 or b"w" not in fields[1] or b"s" not in fields[1]:
            continue
        path = fields[5].decode("utf-8", "replace") if len(fields) > 5 else "anonymous"
        if "/sem." in path:
            warnings.append("A semaphore of multiprocessing is shared by both contexts.")
        elif path.startswith("/dev/nvidia"):
            reasons.append("The GPU is in use (%s): its state cannot be forked." % path)
        else:
            reasons.append("Memory is shared with others (%s): both contexts would write to it. Close it." % path)


def examine_gpu(reasons):
    cuda = getattr(modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        reasons.append("CUDA is initialised: it cannot be used after a fork.")


def examine_timers(warnings):
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        if any(_signal.getitimer(getattr(_signal, name))):
            warnings.append("A timer is set (%s): it stays with the context that was forked." % name)


def flush_files(reasons):
    """Otherwise both would write the current contents of the buffers."""
    global temporary_files
    wrapper = getattr(modules.get("tempfile"), "_TemporaryFileWrapper", ())
    buffers = (_io.BufferedWriter, _io.BufferedRandom)
    temporary_files, texts, binaries = [], [], []
    for value in gc.get_objects():
        kind = type(value)
        if kind is _io.TextIOWrapper:
            texts.append(value)
        elif issubclass(kind, buffers):
            binaries.append(value)
        elif wrapper and kind is wrapper:
            temporary_files.append(value)
    for stream in texts + binaries:
        try:
            if not stream.closed and stream.writable():
                stream.flush()
        except Exception as error:
            reasons.append("%s could not be flushed: %s." % (getattr(stream, "name", "A file"), plain_error(error)))
