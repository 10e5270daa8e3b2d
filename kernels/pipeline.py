"""A burst through the rules: tables are looked up, what they say is done, and a ct is left to the tracker, for many at once.

The caller goes back and forth: ``begin`` reads the burst, ``advance`` takes its packets on until some wait for a ct, and
gathers those; the caller has them tracked, and calls again, until nothing is gathered; ``finish`` answers.

    CLASSIFY --the rule of its table-->  RUN  --ct-->  TRACK  --verdict, table=N-->  CLASSIFY
       |  no rule                         |  end         '-----verdict-->  RUN
       '--> DONE <------------------------'

In a group, packets go through in step.  So that this is as if they went one after the other, a group has no two packets of
one connection, either way: the second one begins the next group.  Packets of one connection have the same two ends, unless
one is as it was sent and the other as rules have translated it; then they differ in which rules may have chosen their
addresses, which is their *form*, and a group has packets of one form.  Errors of ICMP and fragments, which are about others,
go alone.  A fragment that waits in a ct for the rest of its datagram is set aside, and ``resume`` takes it on from there.

Concurrency: the queues, the burst and all scratch memory are one worker's; nobody writes a generation while workers go by
it.
"""

from __future__ import annotations

from ..shm.layout import (
    ACTION,
    DESCRIPTOR,
    DESCRIPTOR_BYTES,
    FIELDS_BYTES,
    FRAME,
    FRAME_BYTES,
    HIT,
    HIT_BYTES,
    INTERVAL,
    INTERVAL_BYTES,
    KEEPS_ADDRESS,
    NO_RECORD,
    NO_TABLE,
    OP,
    OP_BYTES,
    PASSAGE,
    PASSAGE_BYTES,
    PIPE,
    QUEUE,
    STAMPS_MAX,
    VERDICT_BYTES,
    WAITING,
    WAITING_BYTES,
    ActionFlag,
    CtState,
    FrameFlag,
    Life,
    OpKind,
    Stage,
    Step,
    VerdictFlag,
    ZoneFrom,
    offset,
)
from ..shm.reasons import Reason
from . import (
    actions,
    classify,
    counters,
    endpoints,
    entries,
    flow_fields,
    intents,
    locks,
    memory,
    outputs,
    ports,
    router,
    rule_cache,
    stages,
)
from .classify import generation_at
from .flow_fields import fields_at
from .jit import inlined, kernel
from .stages import frame_at
from .verdicts import verdict_at
from .words import EIGHT, LOW_16, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64

TABLES_MAX = u64(64)
"""Tables that a packet goes through at most."""
OPS_MAX = 4096
"""Ops that a packet does between two ct at most; the rules of one file have fewer in a row than TABLES_MAX times this."""
TURNS_MAX = 64 * 32
"""Times that a burst is tracked at most: each packet alone, in each of its tables."""
MS_PER_S = u64(1000)

pipe_at = memory.record_at(PIPE)
action_at = memory.record_at(ACTION)
passage_at = memory.record_at(PASSAGE)
op_at = memory.record_at(OP)
interval_at = memory.record_at(INTERVAL)
hit_at = memory.record_at(HIT)
queue_at = memory.record_at(QUEUE)
descriptor_at = memory.record_at(DESCRIPTOR)
waiting_at = memory.record_at(WAITING)

_FIELDS, _PASSAGE, _FRAME, _VERDICT, _OP, _HIT = (
    u64(size) for size in (FIELDS_BYTES, PASSAGE_BYTES, FRAME_BYTES, VERDICT_BYTES, OP_BYTES, HIT_BYTES)
)
_SIZES = offset(FRAME, "captured_bytes")
_DESCRIPTOR, _WAITING = u64(DESCRIPTOR_BYTES), u64(WAITING_BYTES)
_NO_TABLE, _NO_RECORD = u64(NO_TABLE), u64(NO_RECORD)
_STAMPS_MASK = u64(STAMPS_MAX - 1)
_INTERVAL = u64(INTERVAL_BYTES)
_KEEPS_ADDRESS = u64(KEEPS_ADDRESS)
_MIX = u64(0x9E3779B97F4A7C15)
_VLAN_BITS = u64(0xFFF)
_CLASSIFY, _RUN, _TRACK, _DONE = (u64(stage) for stage in Stage)
_OUTPUT, _IN_PORT, _NORMAL, _CT, _CT_CLEAR, _GOTO, _ROUTE, _ANSWER = (u64(kind) for kind in OpKind)
_COMMIT, _IN_PLACE, _ROOM = u64(FrameFlag.COMMIT), u64(FrameFlag.IN_PLACE), u64(FrameFlag.ROOM)
_FRESH = u64(FrameFlag.FRESH)
_FORCE = u64(ActionFlag.FORCE)
_TRK, _INV = u64(CtState.TRK), u64(CtState.INV)
_TRANSLATED = u64(CtState.SNAT) | u64(CtState.DNAT)
_QUERIES_4 = u64(sum(1 << kind for kind in (0, 8, 13, 14, 15, 16, 17, 18)))
"""A bit for each type of ICMP that is about no other connection."""
_QUERIES_6 = u64(128)
"""Types of ICMPv6 from here on are about no other connection (RFC 4443 2.1)."""
_TWENTY_FOUR = u64(24)


# ------------------------------------------------------------------------------------------------ groups
@inlined
def _hash(fields, without_ports):
    """Return a number that packets of one connection and form share, either way; 0 for those that go alone."""
    protocol = u64(fields.protocol)
    ports = ZERO
    if u64(fields.frag) != ZERO:
        return ZERO
    if protocol == endpoints.ICMP:
        kind = u64(fields.sport)
        if kind >= _TWENTY_FOUR or (_QUERIES_4 >> kind) & ONE == ZERO:
            return ZERO
    elif protocol == endpoints.ICMPV6:
        if u64(fields.sport) < _QUERIES_6:
            return ZERO
    elif not without_ports:
        ports = u64(fields.sport) ^ u64(fields.dport)
    high = u64(fields.src[0]) ^ u64(fields.dst[0])
    low = (u64(fields.src[1]) ^ u64(fields.dst[1])) + (ports << SIXTEEN) + protocol
    return memory.mix(high ^ low ^ _MIX, _MIX ^ low) | ONE


@inlined
def _owner(generation, address):
    """Return the number of the rules that may choose an address, given by its two words."""
    head = generation_at(generation)
    intervals = generation + u64(head.intervals)
    low, left = ZERO, u64(head.interval_count)
    for _ in range(classify.STEPS_MAX):
        if left <= ONE:
            break
        half = left >> ONE
        first = interval_at(intervals + (low + half) * _INTERVAL).first
        if first[0] < address[0] or (first[0] == address[0] and first[1] <= address[1]):
            low += half
        left -= half
    return u64(interval_at(intervals + low * _INTERVAL).owner)


@kernel
def _form(generation, fields):
    """Return which rules may have chosen a packet's addresses, the same either way."""
    memory.seldom()
    src, dst = _owner(generation, fields.src), _owner(generation, fields.dst)
    return (min(src, dst) << THIRTY_TWO) | max(src, dst)


@inlined
def _passage(pipe, i):
    return passage_at(pipe.passages + i * _PASSAGE)


@inlined
def _next_group(pipe, count):
    """Find the packets that go in step next; returns whether there are any."""
    first = pipe.group_end
    if first >= count:
        return False
    pipe.group_first = first
    pipe.group = pipe.group + ONE
    end = first
    form = u64(_passage(pipe, first).form)
    for _ in range(count - first):
        passage = _passage(pipe, end)
        hash_ = u64(passage.hash)
        if u64(passage.form) != form:
            break
        if hash_ == ZERO:
            if end == first:
                end += ONE
            break
        stamp = pipe.stamps + (((hash_ >> THREE) & _STAMPS_MASK) << THREE)
        if memory.le64(stamp) == pipe.group:
            break
        memory.set_le64(stamp, pipe.group)
        end += ONE
    pipe.group_end = end
    return True


@kernel
def begin(pipe, loop, queue, count):
    """Read a burst, and put all its packets before table 0.

    Args:
        pipe: PIPE, with a generation.
        loop: POLL, with the burst's frames.
        queue: QUEUE that it came from.
        count: u64.
    """
    memory.apart()
    in_port = u64(queue.port) + ONE
    translates = u64(generation_at(pipe.generation).translates)
    for i in range(count):
        at = pipe.fields + u64(i) * _FIELDS
        flow_fields.read(frame_at(loop.frames + u64(i) * _FRAME), in_port, at)
        passage = _passage(pipe, u64(i))
        fields = fields_at(at)
        passage.hash = _hash(fields, translates & _KEEPS_ADDRESS != ZERO)
        passage.form = _form(pipe.generation, fields) if translates != ZERO else ZERO
        passage.stage = _CLASSIFY
        passage.table = ZERO
        passage.steps = ZERO
        passage.outputs = ZERO
        passage.reason = ZERO
        passage.tracked_as = ZERO
        passage.foreseen = ZERO
        verdict = loop.verdicts + u64(i) * _VERDICT
        memory.set_le64(verdict, ZERO)
        memory.set_le64(verdict + EIGHT, _NO_RECORD)
        memory.set_le64(verdict + SIXTEEN, ZERO)
    pipe.group_end = ZERO
    pipe.gathered = ZERO
    pipe.group_first = ZERO


# ------------------------------------------------------------------------------------------------ verdicts
@kernel
def _read_label(views, verdict, fields):
    """Read the label of a packet's connection, if it is still there; a lock that is not to be had leaves it 0."""
    memory.apart()
    record = u64(verdict.record)
    entry = entries.address(views, record)
    intents.set_record(views, record, Step.UPDATE)
    if locks.take(entry + entries.LOCK, views.me):
        life = memory.acquire64(entry + entries.LIFE)
        has_label = memory.read32(entry + entries.EXTENSION_LINK) != ZERO
        is_it = entries.state_of(life) == u64(Life.LIVE) and entries.incarnation_of(life) == u64(verdict.incarnation)
        if is_it and has_label:
            label = entries.extension_at(entries.extension_of(views, entry)).label
            fields.label[0] = label[0]
            fields.label[1] = label[1]
        locks.drop(entry + entries.LOCK)
    intents.done(views)


@kernel
def _set_aside(pipe, loop, i):
    """A fragment waits for the rest of its datagram: remember where it goes on, and answer nothing now."""
    memory.seldom()
    ports.describe(queue_at(pipe.queue), loop, i)
    verdict = verdict_at(loop.verdicts + i * _VERDICT)
    passage = _passage(pipe, i)
    descriptor = loop.descriptors + i * _DESCRIPTOR
    at = loop.waiting + u64(verdict.record) * _WAITING
    memory.copy(at, descriptor, _DESCRIPTOR)
    waiting = waiting_at(at)
    waiting.queue = pipe.queue
    waiting.generation = verdict.incarnation
    waiting.op = passage.op
    waiting.op_end = passage.op_end
    waiting.steps = passage.steps
    waiting.outputs = passage.outputs
    waiting.rules = pipe.word
    descriptor_at(descriptor).flags = u64(descriptor_at(descriptor).flags) | u64(FrameFlag.QUIET)
    passage.stage = _DONE
    passage.outputs = ONE  # it is not lost


@kernel
def _go_on(views, pipe, loop, i):
    """Send a packet on its way whose verdict stands."""
    verdict = verdict_at(loop.verdicts + i * _VERDICT)
    if u64(verdict.flags) & u64(VerdictFlag.HELD) != ZERO:
        _set_aside(pipe, loop, i)
    else:
        at = pipe.fields + i * _FIELDS
        fields = fields_at(at)
        if u64(verdict.ct_state) & _TRANSLATED != ZERO:
            # it has other addresses now
            flow_fields.read(frame_at(loop.frames + i * _FRAME), u64(fields.in_port), at)
        fields.ct_state = verdict.ct_state
        fields.zone = verdict.zone
        fields.mark = verdict.mark
        fields.label[0] = ZERO
        fields.label[1] = ZERO
        if u64(generation_at(pipe.generation).asks_label) != ZERO and u64(verdict.record) != _NO_RECORD:
            _read_label(views, verdict, fields)
        passage = _passage(pipe, i)
        op = op_at(pipe.generation + u64(generation_at(pipe.generation).ops) + u64(passage.op) * _OP)
        if u64(op.next_table) == _NO_TABLE:
            passage.op = u64(passage.op) + ONE
            passage.stage = _RUN
        else:
            passage.table = op.next_table
            passage.stage = _CLASSIFY


@inlined
def _absorb(views, pipe, loop):
    """Take the verdicts of those that were tracked, and send each on its way."""
    for k in range(pipe.gathered):
        i = memory.le64(pipe.places + (u64(k) << THREE))
        memory.copy(loop.verdicts + i * _VERDICT, pipe.verdicts + u64(k) * _VERDICT, _VERDICT)
        # what its payload says may be longer now
        memory.set_le64(loop.frames + i * _FRAME + _SIZES, memory.le64(pipe.frames + u64(k) * _FRAME + _SIZES))
        _go_on(views, pipe, loop, i)
    pipe.gathered = ZERO


@kernel
def resume(views, pipe, loop, at, verdict):
    """Take a fragment that waited, the one frame of a burst that ``begin`` has read, on from its ct.

    Args:
        views, pipe, loop: as for `advance`.
        at: address of its WAITING.
        verdict: address of the VERDICT of its datagram.
    """
    memory.seldom()
    waiting = waiting_at(at)
    passage = _passage(pipe, ZERO)
    passage.steps = waiting.steps
    passage.outputs = waiting.outputs
    memory.copy(loop.verdicts, verdict, _VERDICT)
    if u64(waiting.rules) != u64(pipe.word):
        passage.reason = u64(Reason.RULE_MISSED)  # its rule is gone, and what came after it
        passage.stage = _DONE
        return
    passage.op = waiting.op
    passage.op_end = waiting.op_end
    _go_on(views, pipe, loop, ZERO)


# ------------------------------------------------------------------------------------------------ one packet
@inlined
def _look_up(pipe, passage, fields, bytes_):
    """Find the rule of a packet's table, and count it; returns whether there is one."""
    if u64(passage.steps) >= TABLES_MAX:
        passage.reason = u64(Reason.RULE_TABLES)
        return False
    passage.steps = u64(passage.steps) + ONE
    where = u64(passage.foreseen)
    passage.foreseen = ZERO
    number = rule_cache.find(pipe.cache, pipe.word, pipe.generation, u64(passage.table), fields, pipe.rows, where)
    if number == classify.NO_RULE:
        passage.reason = u64(Reason.RULE_MISSED)
        return False
    hit = hit_at(pipe.hits + number * _HIT)
    hit.packets = hit.packets + ONE
    hit.bytes = hit.bytes + bytes_
    rule = classify.rule_at(classify.rule_of(pipe.generation, number))
    passage.op = rule.first_op
    passage.op_end = u64(rule.first_op) + u64(rule.op_count)
    return True


@inlined
def _zone_of(op, fields, queue):
    """Return the zone in which a ct tracks a packet."""
    zone_from = u64(op.zone_from)
    if zone_from == u64(ZoneFrom.NUMBER):
        return u64(op.zone)
    if zone_from == u64(ZoneFrom.VLAN):
        return u64(fields.vlan) & _VLAN_BITS
    if zone_from == u64(ZoneFrom.IN_PORT):
        return u64(fields.in_port)
    return u64(queue.zone) & LOW_16


@inlined
def _is_known(pipe, loop, op, fields, passage, zone, i):
    """Return whether a packet was tracked in a zone already, and nothing is asked that it would have to be again for.

    As in Open vSwitch and Linux, what has found its connection, or is invalid, is not tracked once more: it would be counted
    twice, and a segment that comes twice is a retransmission.
    """
    state = u64(fields.ct_state)
    if state & _TRK == ZERO or u64(fields.zone) != zone:
        return False
    if state & _INV != ZERO:
        return True
    if u64(verdict_at(loop.verdicts + i * _VERDICT).record) == _NO_RECORD:
        return False
    if u64(op.action) == ZERO:
        return True
    asked = action_at(pipe.generation + u64(op.action))
    if u64(op.commit) != ZERO and u64(asked.flags) & _FORCE != ZERO:
        return False
    return u64(asked.nat) == ZERO or u64(passage.translates) != ZERO


@kernel
def _change(views, pipe, loop, asked, fields, i):
    """Change mark and label of the connection of a packet that was tracked already."""
    memory.apart()
    verdict_address = loop.verdicts + i * _VERDICT
    actions.apply(views, pipe.generation + asked, verdict_address)
    verdict = verdict_at(verdict_address)
    fields.mark = verdict.mark
    if u64(generation_at(pipe.generation).asks_label) != ZERO and u64(verdict.record) != _NO_RECORD:
        _read_label(views, verdict, fields)


@kernel
def _goes_on(op, fields):
    """Return whether an op lets a packet go on that waits where it came from."""
    memory.seldom()
    kind = u64(op.kind)
    return kind == _IN_PORT or kind == _NORMAL or (kind == _OUTPUT and u64(op.argument) == u64(fields.in_port))


@inlined
def _gather(views, pipe, loop, passage, frame, op, zone, i):
    """Put a packet among those that are tracked next; what may be translated may grow, and is taken along.

    What was read of one that was tracked in this place the last time, in another zone, is kept.
    """
    k = pipe.gathered
    asked = u64(op.action)
    passage.translates = u64(asked != ZERO and u64(action_at(pipe.generation + asked).nat) != ZERO)
    if u64(passage.translates) != ZERO and u64(frame_at(frame).flags) & _IN_PLACE != ZERO:
        ports.take_along(loop, i)
    target = frame_at(pipe.frames + k * _FRAME)
    place = pipe.places + (k << THREE)
    again = u64(passage.tracked_as) == k + ONE and memory.le64(place) == i and u64(passage.hash) != ZERO
    if again and u64(target.address) == u64(frame_at(frame).address):
        stages.keep(views, k, zone, verdict_at(loop.verdicts + i * _VERDICT))
    passage.tracked_as = k + ONE
    memory.set_le64(place, i)
    memory.copy(pipe.frames + k * _FRAME, frame, _FRAME)
    target.zone = zone
    flags = u64(target.flags) & ~_COMMIT
    flags |= _ROOM if flags & _IN_PLACE == ZERO else ZERO
    fields = fields_at(pipe.fields + i * _FIELDS)
    was_translated = u64(fields.ct_state) & _TRANSLATED != ZERO and u64(fields.zone) == zone
    flags |= ZERO if was_translated else _FRESH
    target.flags = flags | (_COMMIT if u64(op.commit) != ZERO else ZERO)
    target.action = pipe.generation + asked if asked != ZERO else ZERO
    pipe.gathered = k + ONE


@kernel
def _be_a_router(pipe, loop, kind, offset_, i):
    """Do a ROUTE or an ANSWER; returns what becomes of the frame."""
    memory.seldom()
    if kind == _ROUTE:
        return router.route(loop, i, pipe.generation + offset_)
    return router.answer(loop, i, pipe.generation + offset_)


@kernel
def _take_on(views, pipe, loop, queue, i, now_s):
    """Take one packet on until it waits for a ct, or is done."""
    memory.apart()
    passage = _passage(pipe, i)
    at = pipe.fields + i * _FIELDS
    fields = fields_at(at)
    frame = loop.frames + i * _FRAME
    ops = pipe.generation + u64(generation_at(pipe.generation).ops)
    if u64(passage.stage) == _CLASSIFY and not _look_up(pipe, passage, at, u64(frame_at(frame).wire_bytes)):
        passage.stage = _DONE
        return
    for _ in range(OPS_MAX):
        if u64(passage.op) >= u64(passage.op_end):
            break
        op = op_at(ops + u64(passage.op) * _OP)
        kind = u64(op.kind)
        next_table = _NO_TABLE
        if kind == _CT:
            zone = _zone_of(op, fields, queue)
            if not _is_known(pipe, loop, op, fields, passage, zone, i):
                passage.stage = _TRACK
                _gather(views, pipe, loop, passage, frame, op, zone, i)
                return
            if u64(op.commit) != ZERO and u64(op.action) != ZERO:
                _change(views, pipe, loop, u64(op.action), fields, i)
            next_table = u64(op.next_table)
        elif kind == _GOTO:
            next_table = u64(op.argument)
        if next_table != _NO_TABLE:
            passage.table = next_table
            if not _look_up(pipe, passage, at, u64(frame_at(frame).wire_bytes)):
                break
            continue
        if ports.decides(queue) and _goes_on(op, fields):
            passage.outputs = u64(passage.outputs) + outputs.let_go_on(views, pipe, loop, i)
        elif kind == _OUTPUT:
            if u64(op.argument) != u64(fields.in_port):  # as OpenFlow has it: back only by IN_PORT
                passage.outputs = u64(passage.outputs) + outputs.to_port(
                    views, pipe, loop, u64(queue.index), u64(op.argument), i
                )
        elif kind == _IN_PORT:
            passage.outputs = u64(passage.outputs) + outputs.to_port(
                views, pipe, loop, u64(queue.index), u64(fields.in_port), i
            )
        elif kind == _NORMAL:
            passage.outputs = u64(passage.outputs) + outputs.as_a_switch(
                views, pipe, loop, u64(queue.index), at, i, now_s
            )
        elif kind == _CT_CLEAR:
            fields.ct_state = ZERO
            fields.zone = ZERO
            fields.mark = ZERO
            fields.label[0] = ZERO
            fields.label[1] = ZERO
        elif kind == _ROUTE or kind == _ANSWER:
            how = _be_a_router(pipe, loop, kind, u64(op.action), i)
            if how == router.BACK:
                passage.outputs = u64(passage.outputs) + outputs.to_port(
                    views, pipe, loop, u64(queue.index), u64(fields.in_port), i
                )
            if how != router.PASS:
                break
        passage.op = u64(passage.op) + ONE
    passage.stage = _DONE


@kernel
def advance(views, pipe, loop, queue, count, now_ms):
    """Take the packets of a burst on, as far as they come without the tracker.

    Args:
        views: record of shm.views of the worker.
        pipe: PIPE; those it gathered have their verdicts.
        loop: POLL, with the burst.
        queue: QUEUE that it came from.
        count: u64, packets of the burst.
        now_ms: u64, of the burst.

    Returns:
        How many packets are gathered in `pipe.frames`, to be tracked before the next call; 0 when all are done.
    """
    memory.apart()
    if pipe.gathered != ZERO:
        _absorb(views, pipe, loop)
    now_s = now_ms // MS_PER_S
    for _ in range(count + ONE):
        for i in range(pipe.group_first, pipe.group_end):
            passage = _passage(pipe, u64(i))
            if u64(passage.stage) == _CLASSIFY:
                at = pipe.fields + u64(i) * _FIELDS
                passage.foreseen = rule_cache.foresee(pipe.cache, pipe.generation, u64(passage.table), at)
        for i in range(pipe.group_first, pipe.group_end):
            if u64(_passage(pipe, u64(i)).stage) < _TRACK:
                _take_on(views, pipe, loop, queue, u64(i), now_s)
        if pipe.gathered != ZERO or not _next_group(pipe, count):
            break
    return pipe.gathered


@kernel
def finish(views, pipe, loop, address, count):
    """Say what became of a burst: counters and answers; the caller has what was output handed over.

    Args:
        views, pipe, loop, count: as for `advance`.
        address: of the QUEUE that it came from.
    """
    memory.apart()
    for i in range(count):
        passage = _passage(pipe, u64(i))
        reason = u64(passage.reason)
        if reason == ZERO:
            if u64(passage.outputs) != ZERO:
                continue
            reason = u64(Reason.RULE_DROPPED)
        counters.count(views, reason)
        verdict = verdict_at(loop.verdicts + u64(i) * _VERDICT)
        if u64(verdict.reason) == ZERO:
            verdict.reason = reason
    outputs.answer(pipe, loop, address, count)
