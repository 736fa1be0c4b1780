"""Small correct servers ("minis") that keep their data in a dictionary."""

import json
import struct
from base64 import b64decode, b64encode

from targets.declared.protocols import redis, redis_scripts


class MiniRedis:
    """A small Redis: GET, SET, lists, sets, hashes, MULTI, EXEC, and the default Lua scripts."""

    def __init__(self, role=b"master", sentinel=None):
        self.data, self.queued, self.role, self.sentinel = {}, None, role, sentinel

    def answer(self, request):
        return b"".join(self._one(words) for words in commands_of(request))

    def _one(self, words):
        name = words[0].decode().upper()
        if name == "EXEC":
            queued, self.queued = self.queued, None
            return b"*%d\r\n" % len(queued) + b"".join(map(self._one, queued))
        if self.queued is not None:
            self.queued.append(words)
            return b"+QUEUED\r\n"
        return getattr(self, f"_{name.lower()}")(*words[1:])

    def _multi(self):
        self.queued = []
        return b"+OK\r\n"

    def _ping(self):
        return b"+PONG\r\n"

    def _role(self):
        return array([self.role, b"0"])

    def _info(self, _):
        return bulk(b"# Server\r\nrun_id:mine\r\nredis_version:7\r\n")

    def _sentinel(self, question, _):
        return self.sentinel[question.decode()]

    def _get(self, key):
        return bulk(self.data.get(key))

    def _set(self, key, value, *only):
        if only and key in self.data:
            return bulk(None)
        self.data[key] = value
        return b"+OK\r\n"

    def _incr(self, key):
        return self._incrby(key, b"1")

    def _incrby(self, key, amount):
        self.data[key] = b"%d" % (int(self.data.get(key, b"0")) + int(amount))
        return b":%b\r\n" % self.data[key]

    def _sadd(self, key, value):
        self.data.setdefault(key, {})[value] = None
        return b":1\r\n"

    def _smembers(self, key):
        return array(self.data.get(key, ()))

    def _rpush(self, key, value):
        self.data.setdefault(key, []).append(value)
        return b":%d\r\n" % len(self.data[key])

    def _lpop(self, key):
        return bulk(self.data[key].pop(0) if self.data.get(key) else None)

    def _lrange(self, key, *_):
        return array(self.data.get(key, ()))

    def _hsetnx(self, key, field, value):
        self.data.setdefault(key, {}).setdefault(field, value)
        return b":1\r\n"

    def _hgetall(self, key):
        return array(x for pair in self.data.get(key, {}).items() for x in pair)

    def _wait(self, *_):
        return b":1\r\n"

    def _eval(self, script, _, key, *argv):
        text, done = script.decode(), 0
        if text == redis._CAS and self.data.get(key, b"null") == argv[0]:
            self.data[key], done = argv[1], 1
        elif text == redis._RELEASE and self.data.get(key) == argv[0]:
            done = 1 if self.data.pop(key) else 0
        elif text == redis_scripts.LEASE:  # leases never end here
            if key in self.data:
                return b"$-1\r\n"
            self.data[key] = argv[0]
            done = self.data[key + b":token"] = self.data.get(key + b":token", 0) + 1
        elif text == redis_scripts.POLL:
            first = max(int(argv[0]) - 1, 0)
            part = [*enumerate(self.data.get(key, ()), 1)][first : first + 100]
            return array([b"[%d,%s]" % (offset, value) for offset, value in part])
        elif text == redis._DRAIN:
            return array(self.data.pop(key, ()))
        elif text == redis._TRANSFER and int(self.data[key][argv[0]]) >= int(argv[2]):
            for field, amount in ((argv[0], -int(argv[2])), (argv[1], int(argv[2]))):
                self.data[key][field] = b"%d" % (int(self.data[key][field]) + amount)
            done = 1
        return b":%d\r\n" % done


def commands_of(request):
    while request:
        head, _, request = request.partition(b"\r\n")
        words = []
        for _ in range(int(head[1:])):
            size, _, request = request.partition(b"\r\n")
            words.append(request[: int(size[1:])])
            request = request[int(size[1:]) + 2 :]
        yield words


def bulk(text):
    return b"$-1\r\n" if text is None else b"$%d\r\n%b\r\n" % (len(text), text)


def array(items):
    items = list(items)
    return b"*%d\r\n" % len(items) + b"".join(map(bulk, items))


class MiniMemcached:
    """A small Memcached: gets, set, add and cas."""

    def __init__(self):
        self.data, self.version = {}, 0

    def answer(self, request):
        head, _, rest = request.partition(b"\r\n")
        command, key, *words = head.split(b" ") if b" " in head else (head, b"")
        if command == b"version":
            return b"VERSION 1.6\r\n"
        there = self.data.get(key)
        if command == b"gets":
            if there is None:
                return b"END\r\n"
            return b"VALUE %b 0 %d %d\r\n%b\r\nEND\r\n" % (key, len(there[0]), there[1], there[0])
        size = int(words[2])
        assert rest[size:] == b"\r\n"
        if command == b"add" and there is not None:
            return b"NOT_STORED\r\n"
        if command == b"cas" and there is None:
            return b"NOT_FOUND\r\n"
        if command == b"cas" and there[1] != int(words[3]):
            return b"EXISTS\r\n"
        self.version += 1
        self.data[key] = rest[:size], self.version
        return b"STORED\r\n"


class MiniZooKeeper:
    """A small ZooKeeper: sessions, getData, setData, create and sync."""

    def __init__(self):
        self.data, self.began, self.zxid = {}, False, 0

    def answer(self, request):
        if request == b"srvr":
            return b"Zookeeper version: 3\nZxid: 0x500000002\nMode: leader\n"
        body = request[4:]
        if not self.began:
            self.began = True
            return frame(struct.pack(">iiqi16sB", 0, 4000, 7, 16, b"p" * 16, 0))
        xid, kind = struct.unpack_from(">ii", body)
        path, at = text_at(body, 8)
        error, answer = getattr(self, f"_{kind}")(path, body, at)
        return frame(struct.pack(">iqi", xid, self.zxid, error) + answer)

    def _9(self, path, *_):
        return 0, packed(path)

    def _4(self, path, *_):
        if path not in self.data:
            return -101, b""
        data, version = self.data[path]
        return 0, packed(data) + stat(version)

    def _5(self, path, body, at):
        data, at = text_at(body, at)
        (version,) = struct.unpack_from(">i", body, at)
        if path not in self.data:
            return -101, b""
        if version not in {-1, self.data[path][1]}:
            return -103, b""
        self.data[path] = data, self.data[path][1] + 1
        return 0, stat(self.data[path][1])

    def _1(self, path, body, at):
        if path in self.data:
            return -110, b""
        self.data[path] = text_at(body, at)[0], 0
        return 0, packed(path)


def frame(body):
    return struct.pack(">i", len(body)) + body


def packed(data):
    return struct.pack(">i", len(data)) + data


def text_at(body, at):
    (size,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + size], at + 4 + size


def stat(version):
    return struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, version, 0, 0, 0, 0, 0, 1)


class MiniHttp:
    """A small HTTP server; `respond` maps method, path and body to status and JSON."""

    def answer(self, request):
        head, _, body = request.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        status, value = self.respond(method, path, body)
        text = b"" if value is None else json.dumps(value).encode()
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text)


class MiniEtcd(MiniHttp):
    """A small etcd: transactions of ranges and puts."""

    def __init__(self):
        self.data, self.revision = {}, 1

    def respond(self, method, path, body):
        if path == "/version":
            return 200, {"etcdserver": "3.4"}
        header = {"revision": str(self.revision), "member_id": "1"}
        if path == "/v3/maintenance/status":
            return 200, {"header": header, "leader": "1", "raftTerm": "3"}
        asked = json.loads(body)
        if not all(map(self._holds, asked.get("compare", ()))):
            return 200, {"header": header}
        responses = [self._do(each) for each in asked["success"]]
        return 200, {"header": header, "succeeded": True, "responses": responses}

    def _holds(self, compare):
        value, revision = self.data.get(compare["key"], ("", 0))
        if compare["target"] == "MOD":
            return revision == compare["mod_revision"]
        assert compare["target"] == "VALUE"
        return value == compare["value"]

    def _do(self, each):
        header = {"revision": str(self.revision)}
        if "request_put" in each:
            self.revision += 1
            key, value = each["request_put"]["key"], each["request_put"]["value"]
            assert b64encode(b64decode(value)).decode() == value
            self.data[key] = value, self.revision
            return {"response_put": {"header": header}}
        key = each["request_range"]["key"]
        if key not in self.data:
            return {"response_range": {"header": header}}
        value, revision = self.data[key]
        kv = {"key": key, "value": value, "mod_revision": str(revision)}
        return {"response_range": {"header": header, "kvs": [kv], "count": "1"}}


class MiniKv(MiniHttp):
    """A small key-value store over HTTP: one register per path, with GET, PUT and a compare-and-set
    that answers 409.
    """

    def __init__(self):
        self.data = {}

    def respond(self, method, path, body):
        if method == "GET":
            return (200, {"node": {"value": self.data[path]}}) if path in self.data else (404, {})
        asked = json.loads(body)
        if method == "PUT":
            self.data[path] = asked["value"]
            return 204, None
        if json.dumps(self.data.get(path)) != json.dumps(asked["old"]):
            return 409, {"why": "another value"}
        self.data[path] = asked["new"]
        return 200, {}
