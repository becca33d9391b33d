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
    "late-rollback": Hazard(
        "An operator goes back to the former version after the upgrade was ended. Its processes crash at records that "
        "they cannot read, and restart for hours.",
        "They are refused before the roll-back, and at their start, in one sentence and before anything is written.",
    ),
    "changed-default": Hazard(
        "A version reads a missing field of an older record as something else than the version that wrote it meant.",
        "A default belongs to the format. A directory of each former version is kept for ever, and the tests serve it.",
    ),
    "start-races-finalize": Hazard(
        "An operator raises the level. A process of an older version reads the former level, is not counted, because "
        "it registers a moment later, and serves at a level that it does not know.",
        "A process registers before it reads the level. A level is announced before the processes are counted.",
    ),
    "away-node-of-an-older-version": Hazard(
        "A storage node of an older version has lost its session when the level is raised: all that are registered "
        "know it. The node comes back, with data that the others expect it to understand.",
        "Storage nodes that are away and not retired are counted by the version that they noted last. An owner that "
        "comes back gets no topics, and loses those that it had.",
    ),
}
