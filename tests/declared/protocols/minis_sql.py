"""Small servers in the wire formats of PostgreSQL and MySQL, with one table of registers."""

import re
import struct


class Registers:
    """A table of registers, which executes the three default SQL statements for registers."""

    def __init__(self):
        self.data = {}

    def run(self, statement, parameters):
        if statement.startswith("select"):
            (key,) = parameters
            return [self.data[key]] if key in self.data else [], 0
        if statement.startswith("insert"):
            key, value = parameters
            self.data[key] = value
            return None, 1
        new, key, old = parameters
        if self.data.get(key) != old:
            return None, 0
        self.data[key] = new
        return None, 1


class MiniPostgres(Registers):
    """A small PostgreSQL: the simple query for the role, and extended queries with parameters as
    text.
    """

    def __init__(self):
        super().__init__()
        self.began = False

    def answer(self, request):
        if not self.began:
            self.began = True
            status = message(b"S", b"client_encoding\0UTF8\0") + message(
                b"S", b"server_version\x0015\0"
            )
            return message(b"R", struct.pack("!i", 0)) + status + message(b"Z", b"I")
        answer, statement, parameters = b"", "", []
        for kind, body in messages(request):
            if kind == b"Q":
                columns = described(("leads", 16), ("timeline", 23))
                answer += columns + row("t", "1") + done("SELECT 1") + message(b"Z", b"I")
            elif kind == b"P":
                statement = body[1:].partition(b"\0")[0].decode()
                answer += message(b"1", b"")
            elif kind == b"B":
                parameters = bound(body)
                answer += message(b"2", b"")
            elif kind == b"E":
                rows, affected = self.run(statement, parameters)
                if rows is None:
                    answer += message(b"n", b"") + done(f"UPDATE {affected}")
                else:
                    answer += described(("value", 25)) + b"".join(map(row, rows))
                    answer += done(f"SELECT {len(rows)}")
            elif kind == b"S":
                answer += message(b"Z", b"I")
        return answer


def messages(data):
    while data:
        size = struct.unpack_from("!i", data, 1)[0]
        yield data[:1], data[5 : size + 1]
        data = data[size + 1 :]


def message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def bound(body):
    _, _, rest = body.partition(b"\0")
    _, _, rest = rest.partition(b"\0")
    (formats,) = struct.unpack_from("!h", rest)
    at = 2 + 2 * formats
    (count,) = struct.unpack_from("!h", rest, at)
    at, parameters = at + 2, []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", rest, at)
        parameters.append(rest[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return parameters


def described(*columns):
    body = struct.pack("!h", len(columns))
    for name, kind in columns:
        body += name.encode() + b"\0" + struct.pack("!ihihih", 0, 0, kind, -1, -1, 0)
    return message(b"T", body)


def row(*cells):
    body = struct.pack("!h", len(cells))
    for cell in cells:
        body += struct.pack("!i", len(cell.encode())) + cell.encode()
    return message(b"D", body)


def done(tag):
    return message(b"C", tag.encode() + b"\0")


LITERAL = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}


class MiniMySql(Registers):
    """A small MySQL: a greeting, a log-in that always succeeds, and queries as text."""

    hello = b""

    def __init__(self):
        super().__init__()
        self.began = False
        seed = b"12345678\0" + struct.pack("<HBHHB", 0xF7FF, 45, 2, 0x81FF, 21) + b"\0" * 10
        name = b"mysql_native_password\0"
        self.hello = packet(
            0, b"\x0a8.0.0\0" + struct.pack("<I", 1) + seed + b"9" * 12 + b"\0" + name
        )

    def answer(self, request):
        if not self.began:
            self.began = True
            return packet(2, ok(0))
        text = request[5:].decode()
        if not text.startswith(("select", "insert", "update")):
            return packet(1, ok(0))
        if text == "select @@global.read_only":
            return table(3, ["0"])
        literals = [unescaped(match[1]) for match in LITERAL.finditer(text)]
        rows, affected = self.run(text, literals)
        return packet(1, ok(affected)) if rows is None else table(252, rows)


def unescaped(text):
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def packet(number, body):
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def ok(affected):
    return b"\0" + sized(affected) + b"\0" + struct.pack("<HH", 2, 0)


def sized(number):
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def counted(text):
    return sized(len(text)) + text


def table(kind, rows):
    names = b"".join(map(counted, (b"def", b"", b"", b"", b"value", b"value")))
    column = names + b"\x0c" + struct.pack("<HIBHB", 45, 1 << 16, kind, 0, 0) + b"\0\0"
    end = b"\xfe" + struct.pack("<HH", 0, 2)
    bodies = [sized(1), column, end, *(counted(cell.encode()) for cell in rows), end]
    return b"".join(packet(number, body) for number, body in enumerate(bodies, 1))
