"""etcd's v2 API for tests: written keys, and writes that are about to come."""

import collections
import json
import urllib.parse

NO_KEY = 100
EXISTS = 105


class Error(Exception):
    """The etcd has refused: errorCode in code."""

    def __init__(self, answer):
        try:
            self.code = answer.json["errorCode"]
        except (ValueError, KeyError):
            self.code = None
        super().__init__(str(answer))


class V2:
    """Keys of an etcd_cluster.Etcd, or of a member of a cluster."""

    def __init__(self, etcd):
        self.etcd = etcd

    def key(self, method, key, **fields):
        """A request to a key; fails with Error unless the etcd has done it."""
        path, body, headers = "/v2/keys" + urllib.parse.quote(key), None, {}
        form = urllib.parse.urlencode(
            {name: str(value).lower() if isinstance(value, bool) else value
             for name, value in fields.items()})
        if method == "PUT":
            body = form.encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        elif form:
            path += "?" + form
        answer = self.etcd.call(method, path, body, headers)
        if answer.status not in (200, 201):
            raise Error(answer)
        return answer

    def get(self, key):
        """The node of a key as the etcd describes it; None if there is none."""
        try:
            return self.key("GET", key).json["node"]
        except Error as error:
            if error.code == NO_KEY:
                return None
            raise

    def put(self, key, **fields):
        """Write: value, ttl, prevExist, prevValue, prevIndex, refresh, dir. The new node."""
        return self.key("PUT", key, **fields).json["node"]

    def make_dir(self, key):
        """A directory, unless it is there."""
        try:
            self.put(key, dir=True, prevExist=False)
        except Error as error:
            if error.code != EXISTS:
                raise

    def json(self, key):
        """The value of a key, parsed; None if there is no such key."""
        node = self.get(key)
        return None if node is None else json.loads(node["value"])

    def names(self, directory):
        """The full names of what lies in a directory."""
        node = self.get(directory) or {}
        return [child["key"] for child in node.get("nodes", ())]


class Request(collections.namedtuple("Request", "method path fields")):
    """A request on its way; fields: those of the query and of a form."""

    @classmethod
    def of(cls, data):
        """From the bytes that etcd_cluster.Swallow gives to a function."""
        head, _, body = data.partition(b"\r\n\r\n")
        method, target, _ = head.decode("latin-1").split(" ", 2)
        path, _, query = target.partition("?")
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if method == "PUT":
            fields.update(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        return cls(method, urllib.parse.unquote(path), fields)

    def is_write(self, end):
        """Whether a value is written to a key whose name ends so."""
        return (self.method == "PUT" and self.path.startswith("/v2/keys/")
                and self.path.endswith(end) and "value" in self.fields)

    def is_watch(self):
        return self.fields.get("wait") == "true"

    def document(self):
        """The value that is written, if it is a JSON object; else an empty one."""
        try:
            value = json.loads(self.fields.get("value", "null"))
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {}
