"""The rights of namespaces, for the readers of a door."""

from collections.abc import Mapping, Sequence

from oncelog_doors.log_client.namespace_answers import NamespaceAnswers

#: {role: its rights}
Grants = Mapping[str, Sequence[str]]


class NamespaceGrants(NamespaceAnswers[Grants]):
    """Of one door. It keeps one answer for each namespace that had a reader."""
