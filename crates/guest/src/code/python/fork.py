# Part "fork": branches the interpreter. Both start with the same variables and then diverge. State that two processes
# cannot share is refused with its reason (part "hazards") or fixed in the new one (part "branch").
import gc


def fork(force, fds):
    global is_branching
    if len(fds) != 3:
        close_all(fds)
        return refuse(["The descriptors of the new context did not come."])
    try:
        part("hazards")
        # Now, so that the next branch finds it compiled.
        part("branch")
        reasons, warnings, files = examine(set(fds))
    except BaseException as error:
        close_all(fds)
        return refuse(["What a fork would share could not be found out: %s." % plain_error(error)])
    if reasons and not force:
        close_all(fds)
        return refuse(reasons)
    warnings = reasons + warnings
    copies = reopened(files, warnings)
    flush(out)
    flush(err)
    was_collecting = gc.isenabled()
    gc.disable()
    is_branching = True
    try:
        is_new, said = fork_twice(fds, copies)
    except OSError as error:
        is_new, said = False, b"!" + str(error).encode()
    finally:
        is_branching = False
        if was_collecting:
            gc.enable()
    if is_new:
        return begin_as_branch()
    close_all(fds)
    close_all(copy for _, copy, _ in copies)
    if said.isdigit():
        told = ",".join(quote(warning) for warning in warnings)
        send(('f{"ok":true,"pid":%d,"warnings":[%s]}\n' % (int(said), told)).encode())
    else:
        told = said[1:].decode("utf-8", "replace") or "it ended at once"
        refuse(["The interpreter could not be forked: %s." % told])


def refuse(reasons):
    send(('f{"ok":false,"reasons":[%s]}\n' % ",".join(quote(reason) for reason in reasons)).encode())


def close_all(fds):
    for fd in fds:
        try:
            close(fd)
        except OSError:
            pass


def reopened(files, warnings):
    """An offset of its own for the new process: `(number, new description, whether children inherit it)`."""
    copies = []
    for fd, path, position, flags in files:
        kept = flags & ~(posix.O_CREAT | posix.O_EXCL | posix.O_TRUNC | posix.O_NOCTTY | posix.O_NOFOLLOW)
        try:
            copy = posix.open("/proc/self/fd/%d" % fd, kept | posix.O_CLOEXEC)
            posix.lseek(copy, position, 0)
            copies.append((fd, copy, not flags & posix.O_CLOEXEC))
        except OSError as error:
            warnings.append("Both contexts share the position in %s: it cannot be opened again (%s)." % (path, error.strerror))
    return copies


def fork_twice(fds, copies):
    """Forks twice, so that the new process is not our child: we need not wait for it. Returns in both, with its
    report."""
    said, saying = posix.pipe()
    between = posix.fork()
    if between == 0:
        try:
            if posix.fork():
                posix._exit(0)
            become_branch(fds, copies)
            write_out(saying, b"%d" % getpid())
            close_all((said, saying))
            return True, b""
        except BaseException as error:
            write_out(saying, ("!" + plain_error(error)).encode()[:1000])
            posix._exit(1)
    close(saying)
    heard = b""
    while True:
        piece = posix.read(said, 4096)
        if not piece:
            break
        heard += piece
    close(said)
    posix.waitpid(between, 0)
    return False, heard
