# Passed to the interpreter in its environment: reads the driver's parts from descriptor 3 and runs them. Leaves no name
# behind.
def boot():
    from os import environ
    from posix import read

    # Ours (see drivers.rs), and read by the C library long ago.
    if environ.get("GLIBC_TUNABLES") == "glibc.malloc.hugetlb=1":
        del environ["GLIBC_TUNABLES"]

    def take(n):
        data = b""
        while len(data) < n:
            piece = read(3, n - len(data))
            if not piece:
                raise SystemExit("the channel ended before the driver came")
            data += piece
        return data

    frame = take(int.from_bytes(take(4), "little"))
    parts, at = {}, 1
    while at < len(frame):
        end = at + 2 + int.from_bytes(frame[at : at + 2], "little")
        start = end + 4
        name, at = frame[at + 2 : end].decode(), start + int.from_bytes(frame[end:start], "little")
        parts[name] = frame[start:at]
    import builtins

    # A copy of the builtins: the driver keeps working if a cell deletes or replaces them.
    driver = {"__name__": "driver", "__builtins__": dict(vars(builtins)), "parts": parts}
    exec(compile(parts["core"], "<driver core>", "exec"), driver)
    del globals()["boot"]
    driver["serve"]()


boot()
