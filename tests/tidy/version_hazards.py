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
}
