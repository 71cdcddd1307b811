import os, sys, json, traceback, signal

def say(line):
    data = line.encode()
    while data:
        data = data[os.write(3, data):]

busy = False
def interrupted(*_):
    if busy:
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)
os.set_inheritable(3, False)
space = {'__name__': '__main__', '__builtins__': __builtins__}
say('i\n')
while True:
    kind, data = read_frame()
    number, code, status = int.from_bytes(data[:8], 'little'), data[8:].decode(), 0
    try:
        try:
            busy = True
            exec(compile(code, '<cell>', 'exec'), space)
        finally:
            busy = False
    except KeyboardInterrupt:
        status = 130
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        status = 1
        say('r' + json.dumps({'type': 'error', 'name': type(error).__name__, 'value': str(error), 'traceback': traceback.format_exc()}) + '\n')
    sys.stdout.flush()
    sys.stderr.flush()
    say('d' + json.dumps({'cell': number, 'code': status}) + '\n')
