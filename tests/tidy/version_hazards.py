"""The hazards of several versions in one cluster: a part of `hazards`."""

from tests.tidy.hazard import Hazard

VERSION_HAZARDS = {
    "dropped-field": Hazard(
        "A newer version has added a field to a record, and relies on it. An older one changes the record, and writes "
        "it without the field.",
        "A record keeps the fields that its reader does not know, and each write contains them unchanged.",
    ),
    "newer-record-taken-for-damage": Hazard(
        "A storage node is rolled back behind a version that journals records of a new kind. It takes them for damage, "
        "and puts all its ledgers into limbo, or cuts them off as a torn write.",
        "A sound record of an unknown kind refuses the start, before anything is changed.",
    ),
    "start-races-finalize": Hazard(
        "An operator raises the level. A process of an older version reads the former level, is not counted, because "
        "it registers a moment later, and serves at a level that it does not know.",
        "A process registers before it reads the level, and whoever raises the level announces it before the count.",
    ),
    "away-node-of-an-older-version": Hazard(
        "A storage node of an older version has lost its session when the level is raised: all that are registered "
        "know it. The node comes back, with data that the others expect it to understand.",
        "Storage nodes that are away and not retired are counted by the version that they noted last.",
    ),
}
