# Part "branch": after a fork, the new interpreter separates itself from whatever it must not share with the old one.


def become_branch(fds, copies):
    """Gives it its own session, channel, streams and file positions. The requester can be answered after this."""
    global pid, sending
    pid = getpid()
    posix.setsid()
    sending = _thread.allocate_lock()
    new_channel, new_out, new_err = fds
    dup2(new_channel, channel, False)
    for new, number, kept in ((new_out, 1, kept_out), (new_err, 2, kept_err)):
        dup2(new, number)
        dup2(new, kept, False)
    for fd, copy, is_inherited in copies:
        dup2(copy, fd, is_inherited)
    close_all(list(fds) + [copy for _, copy, _ in copies])


def begin_as_branch():
    for step in (renew_loops, forget_cleanups, renew_random, renew_identity):
        try:
            step()
        except Exception as error:
            print("%s failed in the new context: %s" % (step.__name__, plain_error(error)), file=err)
    flush(err)
    send(b"i\n")


def renew_loops():
    """An event loop waits in a kernel object that the fork shares."""
    for each in branch_loops:
        old = each._selector
        each._selector = type(old)()
        # Closed without removing anything: its contents belong to the other process too.
        old.close()
        each._ssock.close()
        each._csock.close()
        each._ssock = each._csock = None
        each._internal_fds -= 1
        each._make_self_pipe()
        if getattr(each, "_signal_handlers", None):
            _signal.set_wakeup_fd(each._csock.fileno())


def forget_cleanups():
    """Handlers registered before the fork would clean up what the other process still uses."""
    import atexit

    atexit._clear()
    finalize = getattr(modules.get("weakref"), "finalize", None)
    if finalize is not None:
        finalize._registry.clear()
        finalize._registered_with_atexit = False
    for wrapper in globals().pop("temporary_files", ()):
        wrapper.delete = wrapper._closer.delete = False
    if "logging" in modules:
        atexit.register(modules["logging"].shutdown)
    processes = modules.get("multiprocessing.util")
    if processes is not None:
        processes._finalizer_registry.clear()
        atexit.register(processes._exit_function)


def renew_random():
    """Gives it different random numbers. Python itself reseeds `random`."""
    numpy_random = modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    if "torch" in modules:
        modules["torch"].seed()
    plain = getattr(modules.get("random"), "Random", ())
    generator = getattr(numpy_random, "Generator", ())
    legacy = getattr(numpy_random, "RandomState", ())
    for value in list(space.values()):
        kind = type(value)
        if generator and issubclass(kind, generator):
            bits = value.bit_generator
            bits.state = type(bits)().state
        elif (legacy and issubclass(kind, legacy)) or (plain and issubclass(kind, plain)):
            value.seed()


def renew_identity():
    uuid = modules.get("uuid")
    if uuid is not None:
        # The library keeps a sequence that both would continue from the same number.
        uuid._generate_time_safe = None
        uuid._last_timestamp = None
    process = modules.get("multiprocessing.process")
    if process is not None:
        current = process.current_process()
        current.authkey = posix.urandom(32)
