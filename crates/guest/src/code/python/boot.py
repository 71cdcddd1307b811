import os
def _read(n):
    data = b''
    while len(data) < n:
        piece = os.read(3, n - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
def _frame():
    size = int.from_bytes(_read(4), 'little')
    data = _read(size)
    return data[:1], data[1:]
_parts = {}
_, _data = _frame()
while _data:
    _n = int.from_bytes(_data[:2], 'little')
    _name, _data = _data[2:2 + _n].decode(), _data[2 + _n:]
    _n = int.from_bytes(_data[:4], 'little')
    _parts[_name], _data = _data[4:4 + _n].decode(), _data[4 + _n:]
exec(compile(_parts['core'], '<driver>', 'exec'), {'read_frame': _frame, 'parts': _parts, '__name__': 'driver'})
