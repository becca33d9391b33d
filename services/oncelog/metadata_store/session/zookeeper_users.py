"""The ZooKeeper users of this cluster: names and passwords for digest authentication, and their ACLs.

A file holds one `user:password` per line. The first line is the cluster's user, to whom new nodes belong. Further lines
are former users, which are sent as well: so a password can be changed while the cluster runs. Blank lines are ignored.
"""

from pathlib import Path
from typing import NamedTuple

from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from oncelog.core.errors import InvalidArgument

FILE_BYTES_MAX = 4_096
PASSWORD_CHARACTERS_MIN = 16
#: The cluster's user, and former users.
USERS_MAX = 4


class ZooKeeperUser(NamedTuple):
    name: str
    password: str

    @property
    def acl(self) -> ACL:
        """All rights for this user."""
        return make_digest_acl(self.name, self.password, all=True)

    @property
    def credentials(self) -> str:
        return f"{self.name}:{self.password}"


#: All rights for everybody.
WORLD: ACL = OPEN_ACL_UNSAFE[0]


def read_users(path: Path, name: str) -> tuple[ZooKeeperUser, ...]:
    """The users in a file, the cluster's own first. name: the setting with the path, for errors.

    Raises InvalidArgument; the error never contains the file's content.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
        lines = [line.strip() for line in data.decode("ascii").splitlines() if line.strip()]
    except OSError as error:
        message = f"{name}: cannot read {path} ({error.strerror}): correct the path or its permissions"
        raise InvalidArgument(message, field=name) from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name}: {path} must hold ASCII text: user:password", field=name) from error
    if not 1 <= len(lines) <= USERS_MAX:
        message = f"{name}: {path} has {len(lines)} lines; it must have 1 to {USERS_MAX} lines of user:password"
        raise InvalidArgument(message, field=name, limit=USERS_MAX)
    users = [ZooKeeperUser(*line.partition(":")[::2]) for line in lines]
    for number, user in enumerate(users, start=1):
        if not user.name or len(user.password) < PASSWORD_CHARACTERS_MIN or not user.credentials.isprintable():
            message = (
                f"{name}: line {number} of {path} is not user:password, with a password of at least "
                f"{PASSWORD_CHARACTERS_MIN} characters"
            )
            raise InvalidArgument(message, field=name, limit=PASSWORD_CHARACTERS_MIN)
    return tuple(users)
