"""The lines of a fork at one entry: the path to it and the labels on that. Only reads.

The rule it keeps: a line is taken byte for byte wherever it says what the source's entry says, and the fork
shows the same context at its leaf. Written anew are only entries of older versions, those that were hung
elsewhere because of damage, and what a part of the log cannot carry as it stands: the edits of a compaction
that is not on the path, and labels that were given on another branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from session_store.codec import decode_entry, encode_entry, parse_line
from session_store.entries import CURRENT_VERSION, ContextEditEntry, Entry, LabelEntry
from session_store.ids import new_id, now_iso
from session_store.writing import SessionWriter


def path_lines(source: SessionWriter, entry_id: str) -> Iterator[bytes]:
    """What a fork at that entry has below its header; the entry's own line is the last.

    Raises:
        EntryNotFoundError: there is no such entry.
    """
    return _lines_of(source, source.get_branch(entry_id))


def _lines_of(source: SessionWriter, path: Sequence[Entry]) -> Iterator[bytes]:
    on_path = {entry.id: entry for entry in path}
    labels = _labels_from_elsewhere(source, path)
    recorded = _recorded_lines(source, on_path)
    ahead: dict[str, bytes] = {}
    for entry in path:
        if entry is path[-1]:
            # Before the last line, which must stay the leaf.
            yield from (encode_entry(label) for label in labels)
        if isinstance(entry, ContextEditEntry) and entry.batch is not None and entry.batch not in on_path:
            yield encode_entry(replace(entry, batch=None))
            continue
        while entry.id not in ahead:
            found = next(recorded, None)
            if found is None:
                ahead[entry.id] = encode_entry(entry)
            else:
                ahead[found[0]] = found[1]
        yield ahead.pop(entry.id)


def _recorded_lines(source: SessionWriter, wanted: Mapping[str, Entry]) -> Iterator[tuple[str, bytes]]:
    """The lines of the file that say exactly what the wanted entry of that id says, in file order."""
    if source.path is None or source.header.version != CURRENT_VERSION:
        return
    with source.path.open("rb", buffering=1 << 20) as lines:
        for line in lines:
            data = parse_line(line) if line.endswith(b"\n") else None
            found = data.get("id") if data is not None else None
            if isinstance(found, str) and found in wanted and decode_entry(data or {}) == wanted[found]:
                yield found, line


def _labels_from_elsewhere(source: SessionWriter, path: Sequence[Entry]) -> list[LabelEntry]:
    """Labels of entries on the path that the path alone does not give, each hung beside the path's end."""
    given = {entry.target_id: entry.label for entry in path if isinstance(entry, LabelEntry)}
    end = path[-1]
    # What the path's end says is the last word: nothing can come after the leaf.
    settled = end.target_id if isinstance(end, LabelEntry) else None
    return [
        LabelEntry(id=new_id(), parent_id=end.parent_id, timestamp=now_iso(), target_id=entry.id, label=label)
        for entry in path
        if entry.id != settled and (label := source.labels.get(entry.id)) != given.get(entry.id)
    ]
