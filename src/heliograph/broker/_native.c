/* The hot path of a broker, compiled.

   In:    bytes of a link's stream, and the broker's own objects, read and written by attribute.
   Out:   Shortcut: one write for one read. scan: runs of frames with their route. Routes: the cache that both use.
          NAMES and LIMITS: the attributes and numbers that are used here, for twins.py to compare.
   State: only Routes has any.
   Not here: anything rare. It is left to Python: the shortcut returns None, the scan returns why it stopped.
   Long:  one file, so that the compiler can inline what is called once per publication.

   Each has a twin in Python that does the same: Shortcut: PlainShortcut in shortcut.py. scan, frames_of: wire/scan.py.
   Routes: PlainRoutes in routes.py. A change there is a change here; tests/broker/test_native.py and test_shortcut.py
   compare them.

   What is read (r) and written (w) of Python objects:
     Link        id r, state r, need r, neighbour r, seen r, routes r, touched r, pressed r, backlog r, dropped r,
                 publishes r, deliveries rw, heard_at w, bytes_in rw
     Sink        link r, own r, bytes_max r, neighbour r, _dropped r, _rest r, _length r
     HopSink     _fixed r, _hops r, and what a Sink has
     Neighbour   suspected r, is_timed r, owed rw, heard_in w, sent rw, sent_bytes rw, sent_number rw
     Route       only r, one r, guard r, guarded r            RouteTable  routes r
     Way         is_here r, inside r, sinks r, groups r, lost r
     Seen        origin r, next rw, accepted rw; admit is called      Origins     _known r, _idle rw
     Parcels     _ways r, forwarded rw, arrived rw                    View  settled r          Outbox  writes r
   twins.py has the same list and compares it with NAMES, with the classes and with LIMITS when the module is loaded: if
   a slot is renamed there, or a limit changed, the import fails.

   References: a Shortcut holds its seven parts, Routes its topics and routes, a Scan the routes that it has met. All
   other objects are borrowed (see borrow). */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little endian, and are read here as they are"
#endif

enum { HEAD = 28, BODY = 24, HEADERS_MAX = 1 << 16, PAYLOAD_MAX = 1 << 20 };
enum { EVENT = 1, PARCEL = 2, DELIVERY = 3, READY = 2 };
enum { CONFIRM_EACH = 1 << 12, CONFIRM_BYTES = 1 << 18, UNCONFIRMED_BYTES_MAX = 1 << 20 };

/* Attribute names, created once. */
#define NAMES(X)                                                                                                     \
    X(_dropped) X(_fixed) X(_hops) X(_idle) X(_known) X(_length) X(_rest) X(_ways) X(accepted) X(admit) X(append)    \
    X(arrived) X(backlog) X(bytes_in) X(bytes_max) X(deliveries) X(dropped) X(forwarded) X(groups) X(guard)          \
    X(guarded) X(heard_at) X(publishes)                                                                              \
    X(heard_in) X(id) X(inside) X(is_here) X(is_timed) X(link) X(lost) X(need) X(neighbour) X(next) X(one) X(only)   \
    X(origin) X(owed) X(own) X(pressed) X(routes) X(seen) X(sent) X(sent_bytes) X(sent_number) X(settled) X(sinks)   \
    X(state) X(suspected) X(touched) X(writes)
#define DECLARE(name) static PyObject *n_##name;
NAMES(DECLARE)

static int make_names(void) {
#define MAKE(name) if (n_##name == NULL && (n_##name = PyUnicode_InternFromString(#name)) == NULL) return -1;
    NAMES(MAKE)
    return 0;
}

static uint32_t read32(const char *at) { uint32_t v; memcpy(&v, at, 4); return v; }
static uint64_t read64(const char *at) { uint64_t v; memcpy(&v, at, 8); return v; }

/* Attributes are borrowed: the reference is released at once, and the object that has the attribute keeps the value
   alive. This is safe under three conditions. The attribute is a slot or a class constant, so that its value is not
   created for us: twins.py checks this. The attribute is not written before we are done with its value: only this file
   runs, and it writes only numbers, each after it was read into a C variable. No Python code runs in between: the only
   calls are deque.append, which runs none, and Seen.admit, which changes only its own numbers and is called last.
   Holding references instead would cost about fifty pairs of increments per publication, and a clean-up on every
   return. */

static PyObject *borrow(PyObject *of, PyObject *name) {
    PyObject *value = PyObject_GetAttr(of, name);
    if (value != NULL) Py_DECREF(value);
    return value;
}

static int read_int(PyObject *of, PyObject *name, long long *value) {
    PyObject *number = borrow(of, name);
    if (number == NULL) return -1;
    *value = PyLong_AsLongLong(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int write_int(PyObject *of, PyObject *name, long long value) {
    PyObject *number = PyLong_FromLongLong(value);
    if (number == NULL) return -1;
    int failed = PyObject_SetAttr(of, name, number);
    Py_DECREF(number);
    return failed;
}

static int add_int(PyObject *of, PyObject *name, long long more) {
    long long value;
    return read_int(of, name, &value) < 0 ? -1 : write_int(of, name, value + more);
}

enum { ASK = -2 }; /* in place of the next number of an origin: only Python knows */

static int next_of(PyObject *seen, long long *expected) {
    PyObject *next = borrow(seen, n_next);
    int overflow;
    if (next == NULL) return -1;
    *expected = PyLong_AsLongLongAndOverflow(next, &overflow);
    if (overflow || *expected == INT64_MAX) *expected = ASK;
    return PyErr_Occurred() ? -1 : 0;
}

/* Routes: from a topic to its route, a twin of routes.PlainRoutes. Its lookups take bytes in place, and the memory that
   they will touch can be prefetched: with many topics in use, waiting for memory dominates the cost of a lookup.

   Slots are probed linearly from where a keyed hash points; each names an entry. The key is private to this process, so
   that a client cannot choose topics that collide. */

#if defined(__GNUC__) || defined(__clang__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

enum { SLOTS_MIN = 64, NONE = -1 };

typedef struct { uint32_t hash, entry; } Slot;         /* entry + 1; 0: free */
typedef struct { PyObject *topic, *route; } Entry;     /* topic NULL: free; its route is then the next free entry + 1 */

typedef struct {
    PyObject_HEAD
    Slot *slots;
    Entry *entries;
    uint32_t mask, count, used, room, spare, hand; /* entries: in use, ever used, allocated; first free + 1; eviction */
    PyObject *resolve;
} Routes;

static PyTypeObject *routes_type;
static uint64_t secrets[2];

static uint64_t mix(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    a *= b | 1, a ^= a >> 32, a *= 0x9E3779B97F4A7C15ull;
    return a ^ a >> 29;
#endif
}

static uint32_t hash(const char *at, uint32_t length) {
    uint64_t low, high, state = secrets[0] ^ length;
    for (; length > 16; at += 16, length -= 16)
        low = read64(at), high = read64(at + 8), state = mix(low ^ secrets[1], high ^ state);
    if (length >= 8) low = read64(at), high = read64(at + length - 8);
    else if (length >= 4) low = read32(at), high = read32(at + length - 4);
    else {
        low = high = 0;
        if (length)
            low = (uint8_t)at[0] | (uint64_t)(uint8_t)at[length >> 1] << 8 | (uint64_t)(uint8_t)at[length - 1] << 16;
    }
    state = mix(mix(low ^ secrets[1], high ^ state), secrets[0] ^ 0x9E3779B97F4A7C15ull);
    return (uint32_t)(state >> 32);
}

static int64_t find_slot(Routes *routes, const char *topic, uint32_t length, uint32_t hashed) {
    if (routes->slots == NULL) return NONE;
    for (uint32_t at = hashed & routes->mask;; at = (at + 1) & routes->mask) {
        Slot slot = routes->slots[at];
        if (slot.entry == 0) return NONE;
        if (slot.hash != hashed) continue;
        char *known;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(routes->entries[slot.entry - 1].topic, &known, &size) == 0 && size == length &&
            memcmp(known, topic, length) == 0)
            return at;
    }
}

static PyObject *find_route_of(Routes *routes, const char *topic, uint32_t length, uint32_t hashed) { /* borrowed */
    int64_t at = find_slot(routes, topic, length, hashed);
    return at == NONE ? NULL : routes->entries[routes->slots[at].entry - 1].route;
}

static void place(Routes *routes, Slot slot) {
    uint32_t at = slot.hash & routes->mask;
    while (routes->slots[at].entry) at = (at + 1) & routes->mask;
    routes->slots[at] = slot;
}

static int make_room(Routes *routes) {
    if (routes->spare == 0 && routes->used == routes->room) {
        uint32_t room = routes->room ? routes->room * 2 : SLOTS_MIN / 2;
        Entry *entries = realloc(routes->entries, room * sizeof(Entry));
        if (entries == NULL) return PyErr_NoMemory(), -1;
        routes->entries = entries, routes->room = room;
    }
    if (routes->slots != NULL && (routes->count + 1) * 2 <= routes->mask + 1) return 0;
    uint32_t old_size = routes->slots == NULL ? 0 : routes->mask + 1, size = old_size ? old_size * 2 : SLOTS_MIN;
    Slot *old = routes->slots, *slots = calloc(size, sizeof(Slot));
    if (slots == NULL) return PyErr_NoMemory(), -1;
    routes->slots = slots, routes->mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i].entry) place(routes, old[i]);
    free(old);
    return 0;
}

/* Close the gap that a slot leaves: slots that were displaced past it move back. */
static void remove_slot(Routes *routes, uint32_t gap) {
    for (uint32_t at = (gap + 1) & routes->mask; routes->slots[at].entry; at = (at + 1) & routes->mask) {
        uint32_t home = routes->slots[at].hash & routes->mask;
        if (((at - home) & routes->mask) >= ((at - gap) & routes->mask))
            routes->slots[gap] = routes->slots[at], gap = at;
    }
    routes->slots[gap] = (Slot){0, 0};
}

static int key_of(PyObject *topic, char **bytes, Py_ssize_t *size, uint32_t *hashed) {
    if (PyBytes_AsStringAndSize(topic, bytes, size) < 0) return -1;
    if (*size > INT32_MAX) return PyErr_Format(PyExc_ValueError, "no topic is so long"), -1;
    *hashed = hash(*bytes, (uint32_t)*size);
    return 0;
}

static int routes_put(Routes *routes, PyObject *topic, PyObject *route) {
    char *bytes;
    Py_ssize_t size;
    uint32_t hashed;
    if (key_of(topic, &bytes, &size, &hashed) < 0) return -1;
    int64_t at = find_slot(routes, bytes, (uint32_t)size, hashed);
    if (at != NONE) {
        Entry *entry = &routes->entries[routes->slots[at].entry - 1];
        PyObject *old = entry->route, *name = NULL;
        if (route != NULL) entry->route = Py_NewRef(route);
        else {
            uint32_t index = routes->slots[at].entry;
            remove_slot(routes, (uint32_t)at);
            name = entry->topic, entry->topic = NULL;
            entry->route = (PyObject *)(uintptr_t)routes->spare;
            routes->spare = index, routes->count--;
        }
        Py_XDECREF(name), Py_DECREF(old);
        return 0;
    }
    if (route == NULL) return PyErr_SetObject(PyExc_KeyError, topic), -1;
    if (make_room(routes) < 0) return -1;
    uint32_t index = routes->spare ? routes->spare - 1 : routes->used++;
    if (routes->spare) routes->spare = (uint32_t)(uintptr_t)routes->entries[index].route;
    routes->entries[index] = (Entry){Py_NewRef(topic), Py_NewRef(route)};
    routes->count++;
    place(routes, (Slot){hashed, index + 1});
    return 0;
}

static PyObject *routes_get(Routes *routes, PyObject *topic) {
    char *bytes;
    Py_ssize_t size;
    uint32_t hashed;
    if (key_of(topic, &bytes, &size, &hashed) < 0) return NULL;
    PyObject *route = find_route_of(routes, bytes, (uint32_t)size, hashed);
    return Py_NewRef(route == NULL ? Py_None : route);
}

static PyObject *routes_find(Routes *routes, PyObject *topic) {
    PyObject *route = routes_get(routes, topic);
    if (route != Py_None) return route;
    Py_DECREF(route);
    if (routes->resolve == NULL) return PyErr_SetObject(PyExc_KeyError, topic), NULL;
    return PyObject_CallFunctionObjArgs(routes->resolve, topic, NULL);
}

static int routes_has(Routes *routes, PyObject *topic) {
    PyObject *route = routes_get(routes, topic);
    Py_XDECREF(route);
    return route == NULL ? -1 : route != Py_None;
}

static Py_ssize_t routes_count(Routes *routes) { return routes->count; }

/* Some topics: each call continues after the last one, until all have been returned. */
static PyObject *routes_some(Routes *routes, PyObject *number) {
    long wanted = PyLong_AsLong(number);
    PyObject *topics = PyList_New(0);
    if (PyErr_Occurred() || topics == NULL) { Py_XDECREF(topics); return NULL; }
    for (uint32_t i = 0; i < routes->used && wanted > 0; i++) {
        if (routes->hand >= routes->used) routes->hand = 0;
        PyObject *topic = routes->entries[routes->hand++].topic;
        if (topic == NULL) continue;
        if (PyList_Append(topics, topic) < 0) { Py_DECREF(topics); return NULL; }
        wanted--;
    }
    return topics;
}

static void forget(Routes *routes) {
    Entry *entries = routes->entries;
    uint32_t used = routes->used;
    free(routes->slots);
    routes->slots = NULL, routes->entries = NULL;
    routes->mask = routes->count = routes->used = routes->room = routes->spare = routes->hand = 0;
    for (uint32_t i = 0; i < used; i++)
        if (entries[i].topic != NULL) Py_DECREF(entries[i].topic), Py_DECREF(entries[i].route);
    free(entries);
}

static PyObject *routes_clear(Routes *routes, PyObject *unused) {
    forget(routes);
    Py_RETURN_NONE;
}

static int routes_visit(Routes *routes, visitproc visit, void *arg) {
    for (uint32_t i = 0; i < routes->used; i++)
        if (routes->entries[i].topic != NULL) Py_VISIT(routes->entries[i].route);
    Py_VISIT(routes->resolve);
    Py_VISIT(Py_TYPE((PyObject *)routes));
    return 0;
}

static int routes_let_go(Routes *routes) {
    forget(routes);
    Py_CLEAR(routes->resolve);
    return 0;
}

static void routes_free(Routes *routes) {
    PyTypeObject *type = Py_TYPE((PyObject *)routes);
    PyObject_GC_UnTrack(routes);
    routes_let_go(routes);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(routes);
    Py_DECREF(type);
}

static PyMethodDef routes_methods[] = {
    {"get", (PyCFunction)routes_get, METH_O, "get(topic): its route, or None."},
    {"some", (PyCFunction)routes_some, METH_O, "some(count): so many topics, others with every call."},
    {"clear", (PyCFunction)routes_clear, METH_NOARGS, "Forget all."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef routes_members[] = {
    {"resolve", T_OBJECT_EX, offsetof(Routes, resolve), 0, "Called with a topic that is not there."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot routes_slots[] = {
    {Py_tp_dealloc, routes_free},   {Py_tp_traverse, routes_visit},   {Py_tp_clear, routes_let_go},
    {Py_tp_methods, routes_methods}, {Py_tp_members, routes_members}, {Py_mp_length, routes_count},
    {Py_mp_subscript, routes_find}, {Py_mp_ass_subscript, routes_put}, {Py_sq_contains, routes_has},
    {Py_tp_doc, "Topic to route."}, {0, NULL},
};

static PyType_Spec routes_spec = {
    "heliograph.broker._native.Routes", sizeof(Routes), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, routes_slots};

/* Shortcut: a read that is one publication, or one parcel, for one link that keeps up. */

typedef struct {
    PyObject_HEAD
    PyObject *by_id, *touched, *outbox, *local, *inner, *origins, *view, *parcels;
    long long payload_bytes_max;
} Shortcut;

enum { NO = 0, YES = 1, FAILED = -1 };

typedef struct {
    PyObject *seen, *route;
    long long next;
    uint64_t sequence;
} Found;

/* Whether these bytes are exactly one plain EVENT, newer than the last of its origin, on a topic with a known route. */
static int find(const char *data, Py_ssize_t size, PyObject *routes, PyObject *seen, long long payload_max,
                Found *found) {
    if (size < HEAD || size > payload_max || size > HEADERS_MAX || Py_TYPE(routes) != routes_type) return NO;
    uint32_t word = read32(data + 4), topic_length = word >> 16, header_length = read32(data + 24);
    if (read32(data) != size - 4 || (word & 0xFFFF) != EVENT) return NO;
    if (HEAD + (uint64_t)topic_length + header_length > (uint64_t)size) return NO;
    long long next;
    if (next_of(seen, &next) < 0) return FAILED;
    found->sequence = read64(data + 16);
    if (next == ASK || found->sequence < (uint64_t)next) return NO;
    PyObject *origin = borrow(seen, n_origin);
    if (origin == NULL) return FAILED;
    if (PyLong_AsUnsignedLongLong(origin) != read64(data + 8)) return PyErr_Occurred() ? FAILED : NO;
    found->route = find_route_of((Routes *)routes, data + HEAD, topic_length, hash(data + HEAD, topic_length));
    if (found->route == NULL) return NO;
    found->seen = seen;
    found->next = next;
    return YES;
}

static int keep(Found *found) {
    if (found->sequence == (uint64_t)found->next)
        return write_int(found->seen, n_next, found->next + 1) < 0 ? -1 : add_int(found->seen, n_accepted, 1);
    PyObject *sequence = PyLong_FromUnsignedLongLong(found->sequence);
    PyObject *is_new = sequence == NULL ? NULL : PyObject_CallMethodObjArgs(found->seen, n_admit, sequence, NULL);
    Py_XDECREF(sequence), Py_XDECREF(is_new);
    return is_new == NULL ? -1 : 0;
}

/* Whether a sink's link can be written to at once. */
static int is_free(PyObject *sink, PyObject *link, Py_ssize_t size) {
    PyObject *touched = borrow(link, n_touched), *pressed = borrow(link, n_pressed), *backlog = borrow(link, n_backlog);
    long long state, bytes_max;
    if (touched == NULL || pressed == NULL || backlog == NULL) return FAILED;
    if (touched != Py_False || pressed != Py_False) return NO;
    Py_ssize_t waiting = PyObject_Size(backlog);
    if (waiting != 0) return waiting < 0 ? FAILED : NO;
    if (read_int(link, n_state, &state) < 0 || read_int(sink, n_bytes_max, &bytes_max) < 0) return FAILED;
    return state == READY && size <= bytes_max;
}

/* The write: prefix and frames in one object; NULL without an error if the prefix has to be computed again. */
static PyObject *for_client(PyObject *sink, PyObject *link, const char *frames, Py_ssize_t size) {
    long long dropped, known, length;
    if (read_int(link, n_dropped, &dropped) < 0 || read_int(sink, n__dropped, &known) < 0) return NULL;
    if (dropped != known || read_int(sink, n__length, &length) < 0) return NULL;
    PyObject *rest = borrow(sink, n__rest);
    char *tail;
    Py_ssize_t tail_size;
    if (rest == NULL || PyBytes_AsStringAndSize(rest, &tail, &tail_size) < 0) return NULL;
    PyObject *written = PyBytes_FromStringAndSize(NULL, 4 + tail_size + size);
    if (written == NULL) return NULL;
    char *to = PyBytes_AsString(written);
    uint32_t whole = (uint32_t)(length + size);
    memcpy(to, &whole, 4);
    memcpy(to + 4, tail, tail_size);
    memcpy(to + 4 + tail_size, frames, size);
    return written;
}

/* The same for a neighbour: the parcel is numbered, and kept until it is confirmed. */
static PyObject *for_neighbour(PyObject *sink, PyObject *neighbour, PyObject *data, const char *frames,
                               Py_ssize_t size) {
    long long sent_bytes, number, length;
    if (read_int(neighbour, n_sent_bytes, &sent_bytes) < 0 || sent_bytes + size > UNCONFIRMED_BYTES_MAX) return NULL;
    if (read_int(neighbour, n_sent_number, &number) < 0 || read_int(sink, n__length, &length) < 0) return NULL;
    PyObject *fixed = borrow(sink, n__fixed), *hops = borrow(sink, n__hops), *sent = borrow(neighbour, n_sent);
    if (fixed == NULL || hops == NULL || sent == NULL) return NULL;
    Py_ssize_t fixed_size, hops_size;
    char *head, *tail;
    if (PyBytes_AsStringAndSize(fixed, &head, &fixed_size) < 0 || PyBytes_AsStringAndSize(hops, &tail, &hops_size) < 0)
        return NULL;
    PyObject *written = PyBytes_FromStringAndSize(NULL, 4 + fixed_size + 8 + hops_size + size);
    if (written == NULL) return NULL;
    char *to = PyBytes_AsString(written);
    uint32_t whole = (uint32_t)(length + size);
    uint64_t numbered = (uint64_t)++number;
    memcpy(to, &whole, 4), to += 4;
    memcpy(to, head, fixed_size), to += fixed_size;
    memcpy(to, &numbered, 8), to += 8;
    memcpy(to, tail, hops_size), to += hops_size;
    memcpy(to, frames, size);
    PyObject *kept = data == NULL ? Py_BuildValue("(Ln[y#]O)", number, size, frames, size, sink)
                                  : Py_BuildValue("(Ln[O]O)", number, size, data, sink);
    PyObject *none = kept == NULL ? NULL : PyObject_CallMethodObjArgs(sent, n_append, kept, NULL);
    Py_XDECREF(kept), Py_XDECREF(none);
    if (none == NULL || write_int(neighbour, n_sent_number, number) < 0 ||
        write_int(neighbour, n_sent_bytes, sent_bytes + size) < 0) {
        Py_DECREF(written);
        return NULL;
    }
    return written;
}

/* One write for these frames; ``data`` is the object that holds exactly these frames, or NULL. */
static PyObject *write_to(PyObject *sink, PyObject *data, const char *frames, Py_ssize_t size, PyObject **link) {
    *link = borrow(sink, n_link);
    PyObject *neighbour = borrow(sink, n_neighbour);
    if (*link == NULL || neighbour == NULL || is_free(sink, *link, size) != YES) return NULL;
    PyObject *written = neighbour == Py_None ? for_client(sink, *link, frames, size)
                                             : for_neighbour(sink, neighbour, data, frames, size);
    if (written != NULL && add_int(*link, n_deliveries, 1) < 0) Py_CLEAR(written);
    return written;
}

/* The only sink of a created topic, if this link may publish on it. */
static PyObject *guarded_sink(PyObject *from, PyObject *route) {
    PyObject *guard = borrow(route, n_guard), *publishes = guard == NULL ? NULL : borrow(from, n_publishes);
    if (publishes == NULL || guard == Py_None || PyDict_GetItemWithError(publishes, guard) == NULL) return NULL;
    return borrow(route, n_guarded);
}

static PyObject *of_client(Shortcut *self, PyObject *from, PyObject *data, const char *bytes, Py_ssize_t size,
                           PyObject **to) {
    PyObject *seen = borrow(from, n_seen), *routes = borrow(from, n_routes);
    Found found;
    if (seen == NULL || routes == NULL || seen == Py_None) return NULL;
    if (find(bytes, size, routes, seen, self->payload_bytes_max, &found) != YES) return NULL;
    PyObject *sink = borrow(found.route, n_only);
    if (sink == Py_None) sink = guarded_sink(from, found.route);
    if (sink == NULL || sink == Py_None) return NULL;
    PyObject *own = borrow(sink, n_own), *link = borrow(sink, n_link);
    if (own == NULL || link == NULL || (link == from && own != Py_True)) return NULL;
    PyObject *written = write_to(sink, data, bytes, size, to);
    if (written != NULL && keep(&found) < 0) Py_CLEAR(written);
    return written;
}

/* The record of a known origin, kept as seen.Origins.visit does. */
static PyObject *visit(Shortcut *self, uint64_t origin, PyObject *now) {
    PyObject *known = borrow(self->origins, n__known), *idle = known == NULL ? NULL : borrow(self->origins, n__idle);
    PyObject *key = idle == NULL ? NULL : PyLong_FromUnsignedLongLong(origin);
    if (key == NULL) return NULL;
    PyObject *seen = PyDict_GetItemWithError(known, key);
    if (seen != NULL) {
        int is_idle = PyDict_Contains(idle, key);
        if (is_idle < 0 || (is_idle && (PyDict_DelItem(idle, key) < 0 || PyDict_SetItem(idle, key, now) < 0)))
            seen = NULL;
    }
    Py_DECREF(key);
    return seen;
}

static PyObject *arrive(Shortcut *self, PyObject *way, const char *frames, Py_ssize_t size, PyObject *now,
                        PyObject **to) {
    PyObject *inside = borrow(way, n_inside);
    PyObject *routes = inside == NULL ? NULL : borrow(inside == Py_True ? self->inner : self->local, n_routes);
    if (routes == NULL || size < HEAD) return NULL;
    PyObject *seen = visit(self, read64(frames + 8), now);
    Found found;
    if (seen == NULL || find(frames, size, routes, seen, PAYLOAD_MAX, &found) != YES) return NULL;
    PyObject *sink = borrow(found.route, n_only);
    if (sink == NULL || sink == Py_None) return NULL;
    PyObject *written = write_to(sink, NULL, frames, size, to);
    if (written != NULL && (keep(&found) < 0 || add_int(self->parcels, n_arrived, 1) < 0)) Py_CLEAR(written);
    return written;
}

static PyObject *of_neighbour(Shortcut *self, PyObject *neighbour, const char *bytes, Py_ssize_t size, PyObject *now,
                              PyObject **to) {
    uint32_t length = read32(bytes), word = read32(bytes + 4), hops = read32(bytes + 24);
    if (length != size - 4 || (word & 0xFF) != PARCEL || HEAD + (uint64_t)hops > (uint64_t)size) return NULL;
    PyObject *suspected = borrow(neighbour, n_suspected), *is_timed = borrow(neighbour, n_is_timed);
    long long owed;
    if (suspected == NULL || is_timed == NULL || read_int(neighbour, n_owed, &owed) < 0) return NULL;
    owed += size + CONFIRM_EACH;
    if (suspected != Py_False || is_timed != Py_True || owed > CONFIRM_BYTES) return NULL;
    PyObject *settled = borrow(self->view, n_settled), *ways = settled == NULL ? NULL : borrow(self->parcels, n__ways);
    PyObject *key = ways == NULL ? NULL : Py_BuildValue("(OIKy#)", settled, word, (unsigned long long)read64(bytes + 8),
                                                         bytes + HEAD, (Py_ssize_t)hops);
    if (key == NULL) return NULL;
    PyObject *way = PyDict_GetItemWithError(ways, key);
    Py_DECREF(key);
    if (way == NULL) return NULL;
    PyObject *is_here = borrow(way, n_is_here), *sinks = borrow(way, n_sinks), *groups = borrow(way, n_groups);
    long long lost;
    if (is_here == NULL || sinks == NULL || groups == NULL || read_int(way, n_lost, &lost) < 0 || lost) return NULL;
    const char *frames = bytes + HEAD + hops;
    size -= HEAD + hops;
    PyObject *written = NULL;
    if (is_here == Py_True && PyList_Size(sinks) == 0 && PyTuple_Size(groups) == 0)
        written = arrive(self, way, frames, size, now, to);
    else if (is_here == Py_False && PyList_Size(sinks) == 1) {
        written = write_to(PyList_GetItem(sinks, 0), NULL, frames, size, to);
        if (written != NULL && add_int(self->parcels, n_forwarded, 1) < 0) Py_CLEAR(written);
    }
    uint64_t number = read64(bytes + 16);
    if (written != NULL) {
        PyObject *heard = PyLong_FromUnsignedLongLong(number);
        if (heard == NULL || PyObject_SetAttr(neighbour, n_heard_in, heard) < 0 ||
            write_int(neighbour, n_owed, owed) < 0)
            Py_CLEAR(written);
        Py_XDECREF(heard);
    }
    return written;
}

static PyObject *shortcut_take(Shortcut *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3) return PyErr_Format(PyExc_TypeError, "take(link, data, now)");
    PyObject *data = args[1], *now = args[2], *to = NULL, *written = NULL;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0) return NULL;
    PyObject *from = size < HEAD || PyList_Size(self->touched) ? NULL : PyDict_GetItemWithError(self->by_id, args[0]);
    PyObject *writes = from == NULL ? NULL : borrow(self->outbox, n_writes);
    long long state, need;
    if (writes != NULL && PyList_Size(writes) == 0 && read_int(from, n_need, &need) == 0 && need == 0 &&
        read_int(from, n_state, &state) == 0 && state == READY) {
        PyObject *neighbour = borrow(from, n_neighbour);
        if (neighbour == Py_None) written = of_client(self, from, data, bytes, size, &to);
        else if (neighbour != NULL) written = of_neighbour(self, neighbour, bytes, size, now, &to);
    }
    if (written == NULL) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *number = borrow(to, n_id), *result = NULL;
    if (number != NULL && PyObject_SetAttr(from, n_heard_at, now) == 0 && add_int(from, n_bytes_in, size) == 0)
        result = PyTuple_Pack(2, number, written);
    Py_DECREF(written);
    return result;
}

static PyObject *shortcut_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *links, *outbox, *local, *inner, *origins, *view, *parcels;
    long long payload_bytes_max;
    static char *names[] = {"links", "outbox",  "local",             "inner", "origins",
                            "view",  "parcels", "payload_bytes_max", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOOL:Shortcut", names, &links, &outbox, &local, &inner,
                                     &origins, &view, &parcels, &payload_bytes_max))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Shortcut *self = (Shortcut *)allocate(type, 0);
    if (self == NULL) return NULL;
    self->by_id = PyObject_GetAttrString(links, "by_id");
    self->touched = PyObject_GetAttr(links, n_touched);
    self->outbox = Py_NewRef(outbox);
    self->local = Py_NewRef(local);
    self->inner = Py_NewRef(inner);
    self->origins = Py_NewRef(origins);
    self->view = Py_NewRef(view);
    self->parcels = Py_NewRef(parcels);
    self->payload_bytes_max = payload_bytes_max;
    if (self->by_id == NULL || self->touched == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

#define PARTS(DO) DO(by_id) DO(touched) DO(outbox) DO(local) DO(inner) DO(origins) DO(view) DO(parcels)

static int shortcut_visit(Shortcut *self, visitproc visit, void *arg) {
#define VISIT(part) Py_VISIT(self->part);
    PARTS(VISIT)
    Py_VISIT(Py_TYPE((PyObject *)self));
    return 0;
}

static int shortcut_clear(Shortcut *self) {
#define CLEAR(part) Py_CLEAR(self->part);
    PARTS(CLEAR)
    return 0;
}

static void shortcut_free(Shortcut *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    shortcut_clear(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *shortcut_limit(Shortcut *self, PyObject *payload_bytes_max) {
    long long limit = PyLong_AsLongLong(payload_bytes_max);
    if (limit == -1 && PyErr_Occurred()) return NULL;
    self->payload_bytes_max = limit;
    Py_RETURN_NONE;
}

static PyMethodDef shortcut_methods[] = {
    {"limit", (PyCFunction)shortcut_limit, METH_O, "limit(payload_bytes_max): the largest payload from now on."},
    {"take", (PyCFunction)(void (*)(void))shortcut_take, METH_FASTCALL,
     "take(link, data, now): (link, bytes) or None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shortcut_slots[] = {
    {Py_tp_new, shortcut_new},         {Py_tp_dealloc, shortcut_free},  {Py_tp_traverse, shortcut_visit},
    {Py_tp_clear, shortcut_clear},     {Py_tp_methods, shortcut_methods},
    {Py_tp_doc, "One write for one read."}, {0, NULL},
};

static PyType_Spec shortcut_spec = {
    "heliograph.broker._native.Shortcut", sizeof(Shortcut), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, shortcut_slots};

/* scan: runs of plain EVENTs. The topics of the next frames are looked up ahead, to prefetch their routes. */

enum { MORE, OTHER, MISS };
enum { FRAME_TOO_SHORT = 100, FRAME_OVER_LIMIT, TOPIC_OVER_FRAME, HEADERS_OVER_FRAME, ORIGIN_FOREIGN = 110 };
enum { FRAME_MAX = (1 << 20) | (1 << 16), ROUTES_MAX = 64 };
enum { AHEAD = 32, FETCH_SLOT = 24, FETCH_ENTRY = 16, FETCH_TOPIC = 8 }; /* frames ahead */

typedef struct { uint32_t start, end, route; } Run;
typedef struct { uint32_t at, hash; } Ahead;

typedef struct {
    const char *data;
    Py_ssize_t size;
    Routes *routes;
    PyObject *met[ROUTES_MAX];          /* the routes met in this read, held */
    PyObject *links[ROUTES_MAX];        /* the links of routes that have one sink */
    uint32_t met_count, run_count, run_room, first, last; /* first, last: frames looked up ahead */
    Py_ssize_t ahead_pos;
    Ahead ahead[AHEAD];
    int is_simple; /* every route met has one sink, and no two of them share a link */
    Run *runs;
} Scan;

static PyObject *mixed; /* wire.columns.Mixed */

/* The frames of each route joined, as one Mixed. */
static PyObject *join(Scan *scan) {
    uint32_t bytes[ROUTES_MAX] = {0}, at[ROUTES_MAX] = {0};
    char *to[ROUTES_MAX];
    for (uint32_t i = 0; i < scan->run_count; i++)
        bytes[scan->runs[i].route] += scan->runs[i].end - scan->runs[i].start;
    PyObject *routes = PyList_New(0), *chunks = PyList_New(0), *joined = NULL;
    int failed = routes == NULL || chunks == NULL;
    for (uint32_t i = 0; !failed && i < scan->met_count; i++) {
        if (bytes[i] == 0) continue;
        PyObject *chunk = PyBytes_FromStringAndSize(NULL, bytes[i]);
        failed = chunk == NULL || PyList_Append(chunks, chunk) < 0 || PyList_Append(routes, scan->met[i]) < 0;
        if (!failed) to[i] = PyBytes_AsString(chunk);
        Py_XDECREF(chunk);
    }
    if (!failed) {
        for (uint32_t i = 0; i < scan->run_count; i++) {
            Run *run = &scan->runs[i];
            memcpy(to[run->route] + at[run->route], scan->data + run->start, run->end - run->start);
            at[run->route] += run->end - run->start;
        }
        joined = PyObject_CallFunctionObjArgs(mixed, routes, chunks, NULL);
    }
    Py_XDECREF(routes), Py_XDECREF(chunks);
    return joined;
}

static int give_one(PyObject *spans, PyObject *route, uint32_t start, uint32_t end) {
    PyObject *span = route == NULL ? NULL : Py_BuildValue("(OII)", route, start, end);
    int failed = span == NULL ? -1 : PyList_Append(spans, span);
    Py_XDECREF(span);
    return failed;
}

/* Hand over the runs gathered so far. Where they alternate between links, the frames of each link are joined. */
static int give(Scan *scan, PyObject *spans) {
    int failed = 0;
    if (scan->is_simple && scan->met_count > 1 && scan->run_count >= 2 * scan->met_count) {
        PyObject *joined = join(scan);
        failed = give_one(spans, joined, scan->runs[0].start, scan->runs[scan->run_count - 1].end);
        Py_XDECREF(joined);
    } else {
        for (uint32_t i = 0; !failed && i < scan->run_count; i++)
            failed = give_one(spans, scan->met[scan->runs[i].route], scan->runs[i].start, scan->runs[i].end);
    }
    for (uint32_t i = 0; i < scan->met_count; i++) Py_DECREF(scan->met[i]);
    scan->run_count = scan->met_count = 0;
    scan->is_simple = 1;
    return failed;
}

/* The number of a route in this scan; a new route gets the next one. */
static int number(Scan *scan, PyObject *route, PyObject *spans) {
    for (uint32_t i = 0; i < scan->met_count; i++)
        if (scan->met[i] == route) return (int)i;
    if (scan->met_count == ROUTES_MAX && give(scan, spans) < 0) return FAILED;
    uint32_t at = scan->met_count;
    PyObject *sink = borrow(route, n_one), *link = sink == NULL || sink == Py_None ? Py_None : borrow(sink, n_link);
    if (sink == NULL || link == NULL) return FAILED;
    if (link == Py_None) scan->is_simple = 0;
    for (uint32_t i = 0; i < at; i++)
        if (scan->links[i] == link) scan->is_simple = 0;
    scan->links[at] = link;
    scan->met[at] = Py_NewRef(route);
    scan->met_count = at + 1;
    return (int)at;
}

/* Look at the topics of the next frames, and prefetch the memory that finding their routes will touch. */
static void look_ahead(Scan *scan) {
    Routes *routes = scan->routes;
    while (scan->last - scan->first < FETCH_SLOT && scan->ahead_pos + HEAD <= scan->size) {
        const char *at = scan->data + scan->ahead_pos;
        uint32_t length = read32(at + 4) >> 16;
        if (scan->ahead_pos + HEAD + (Py_ssize_t)length > scan->size) break;
        Ahead *next = &scan->ahead[scan->last++ % AHEAD];
        next->at = (uint32_t)scan->ahead_pos + HEAD;
        next->hash = hash(at + HEAD, length);
        if (routes->slots != NULL) FETCH(&routes->slots[next->hash & routes->mask]);
        scan->ahead_pos += 4 + (Py_ssize_t)read32(at);
    }
    if (routes->slots == NULL) return;
    if (scan->last - scan->first > FETCH_ENTRY) {
        Slot slot = routes->slots[scan->ahead[(scan->first + FETCH_ENTRY) % AHEAD].hash & routes->mask];
        if (slot.entry) FETCH(&routes->entries[slot.entry - 1]);
    }
    if (scan->last - scan->first > FETCH_TOPIC) {
        Slot slot = routes->slots[scan->ahead[(scan->first + FETCH_TOPIC) % AHEAD].hash & routes->mask];
        if (slot.entry) FETCH((char *)routes->entries[slot.entry - 1].topic + 32);
    }
}

/* The number of the route of the topic there; ROUTES_MAX if it has none. */
static int find_route(Scan *scan, uint32_t at, uint32_t length, PyObject *spans) {
    look_ahead(scan);
    int is_known = scan->first != scan->last && scan->ahead[scan->first % AHEAD].at == at;
    uint32_t hashed = is_known ? scan->ahead[scan->first++ % AHEAD].hash : hash(scan->data + at, length);
    PyObject *route = find_route_of(scan->routes, scan->data + at, length, hashed);
    if (route != NULL) return number(scan, route, spans);
    PyObject *name = PyBytes_FromStringAndSize(scan->data + at, length);
    route = name == NULL ? NULL : routes_find(scan->routes, name); /* resolves it */
    Py_XDECREF(name);
    if (route == NULL) return FAILED;
    int found = route == Py_None ? ROUTES_MAX : number(scan, route, spans);
    Py_DECREF(route);
    return found;
}

static int add_run(Scan *scan, int route, uint32_t start, uint32_t end) {
    Run *last = scan->run_count ? &scan->runs[scan->run_count - 1] : NULL;
    if (last != NULL && last->route == (uint32_t)route && last->end == start) {
        last->end = end;
        return 0;
    }
    if (scan->run_count == scan->run_room) {
        uint32_t room = scan->run_room ? scan->run_room * 4 : 64;
        Run *runs = realloc(scan->runs, room * sizeof(Run));
        if (runs == NULL) return PyErr_NoMemory(), -1;
        scan->runs = runs, scan->run_room = room;
    }
    scan->runs[scan->run_count++] = (Run){start, end, (uint32_t)route};
    return 0;
}

static int settle(PyObject *seen, long long base, long long expected) {
    if (expected == base || expected == ASK) return 0;
    return add_int(seen, n_accepted, expected - base) < 0 || write_int(seen, n_next, expected) < 0 ? -1 : 0;
}

static PyObject *scan(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 6) return PyErr_Format(PyExc_TypeError, "scan(data, pos, routes, seen, payload_bytes_max, spans)");
    PyObject *seen = args[3], *spans = args[5];
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(args[0], &data, &size) < 0) return NULL;
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]);
    long long payload_max = PyLong_AsLongLong(args[4]), expected, base;
    PyObject *whose = borrow(seen, n_origin);
    uint64_t origin = whose == NULL ? 0 : PyLong_AsUnsignedLongLong(whose);
    if (PyErr_Occurred() || next_of(seen, &expected) < 0) return NULL;
    if (Py_TYPE(args[2]) != routes_type)
        return PyErr_Format(PyExc_TypeError, "the routes must be of the compiled kind");
    if (pos < 0 || size > INT32_MAX) return PyErr_Format(PyExc_ValueError, "a read is not so long");
    Scan scan;
    memset(&scan, 0, sizeof scan);
    scan.data = data, scan.size = size, scan.routes = (Routes *)args[2], scan.is_simple = 1, scan.ahead_pos = pos;
    base = expected;
    int why = MORE, failed = 0;
    /* in such a frame no part is over its limit */
    int64_t small = payload_max < HEADERS_MAX ? payload_max : HEADERS_MAX;
    while (pos + HEAD <= size) {
        const char *at = data + pos;
        int64_t length = read32(at);
        uint32_t word = read32(at + 4), topic_length = word >> 16;
        int64_t header_length = read32(at + 24), payload_length = length - BODY - topic_length - header_length;
        if ((word & 0xFFFF) != EVENT) { why = OTHER; break; }
        if (length > small && (length + 4 > FRAME_MAX - PAYLOAD_MAX + payload_max || payload_length > payload_max ||
                               header_length > HEADERS_MAX)) { why = FRAME_OVER_LIMIT; break; }
        if (payload_length < 0) {
            why = length < BODY                  ? FRAME_TOO_SHORT
                  : length < BODY + topic_length ? TOPIC_OVER_FRAME
                                                 : HEADERS_OVER_FRAME;
            break;
        }
        Py_ssize_t end = pos + 4 + length;
        if (end > size) break;
        if (read64(at + 8) != origin) { why = ORIGIN_FOREIGN; break; }
        int route = find_route(&scan, (uint32_t)(pos + HEAD), topic_length, spans);
        if (route < 0) { failed = 1; break; }
        if (route == ROUTES_MAX) { why = MISS; break; }
        uint64_t sequence = read64(at + 16);
        if (expected >= 0 && sequence == (uint64_t)expected) {
            if (++expected == INT64_MAX) {
                if (settle(seen, base, expected) < 0) { failed = 1; break; }
                base = expected = ASK;
            }
        } else {
            PyObject *asked = PyLong_FromUnsignedLongLong(sequence);
            PyObject *is_new = asked == NULL || settle(seen, base, expected) < 0
                                   ? NULL : PyObject_CallMethodObjArgs(seen, n_admit, asked, NULL);
            Py_XDECREF(asked), Py_XDECREF(is_new);
            if (is_new == NULL || next_of(seen, &expected) < 0) { failed = 1; break; }
            base = expected;
            if (is_new != Py_True) { pos = end; continue; } /* the next run begins after it and is not adjacent */
        }
        if (add_run(&scan, route, (uint32_t)pos, (uint32_t)end) < 0) { failed = 1; break; }
        pos = end;
    }
    failed = give(&scan, spans) < 0 || failed || settle(seen, base, expected) < 0;
    free(scan.runs);
    return failed ? NULL : Py_BuildValue("(ni)", pos, why);
}

/* Where each frame of a chunk ends; a rest that is not a frame counts as one. */
static PyObject *frames_of(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "frames_of(chunk, start)");
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(args[0], &data, &size) < 0) return NULL;
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]);
    if (pos < 0) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a chunk begins at 0");
    PyObject *ends = PyList_New(0);
    while (ends != NULL && pos < size) {
        int64_t left = size - pos, length = left < 4 ? left : 4 + (int64_t)read32(data + pos);
        pos += length < left ? length : left;
        PyObject *end = PyLong_FromSsize_t(pos);
        if (end == NULL || PyList_Append(ends, end) < 0) Py_CLEAR(ends);
        Py_XDECREF(end);
    }
    return ends;
}

static PyMethodDef functions[] = {
    {"frames_of", (PyCFunction)(void (*)(void))frames_of, METH_FASTCALL,
     "frames_of(chunk, start): where each frame ends."},
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL,
     "scan(data, pos, routes, seen, payload_bytes_max, spans): where, why."},
    {NULL, NULL, 0, NULL},
};

/* A key private to this process, derived from that of Python's hashes. */
static int make_secrets(void) {
    for (int i = 0; i < 2; i++) {
        PyObject *text = PyUnicode_FromFormat("heliograph %d", i);
        Py_hash_t drawn = text == NULL ? -1 : PyObject_Hash(text);
        Py_XDECREF(text);
        if (drawn == -1) return -1;
        secrets[i] = mix((uint64_t)drawn ^ 0xA0761D6478BD642Full, 0xE7037ED1A0B428DBull) | 1;
    }
    return 0;
}

/* What is used here, for twins.py to compare: the names of attributes, and the numbers that Python defines. */
static int tell_twins(PyObject *module) {
    PyObject *names = PyList_New(0);
    int failed = names == NULL;
#define TELL(name) failed = failed || PyList_Append(names, n_##name) < 0;
    NAMES(TELL)
    failed = failed || PyModule_AddObjectRef(module, "NAMES", names) < 0;
    Py_XDECREF(names);
    if (failed) return -1;
#define LIMIT(name) #name, (long long)name
#define FIVE "sLsLsLsLsL"
    PyObject *limits = Py_BuildValue(
        "{" FIVE FIVE FIVE FIVE "}", LIMIT(HEAD), LIMIT(BODY), LIMIT(HEADERS_MAX), LIMIT(PAYLOAD_MAX), LIMIT(FRAME_MAX),
        LIMIT(EVENT), LIMIT(PARCEL), LIMIT(DELIVERY), LIMIT(READY), LIMIT(CONFIRM_EACH), LIMIT(CONFIRM_BYTES),
        LIMIT(UNCONFIRMED_BYTES_MAX), LIMIT(MORE), LIMIT(OTHER), LIMIT(MISS), LIMIT(FRAME_TOO_SHORT),
        LIMIT(FRAME_OVER_LIMIT), LIMIT(TOPIC_OVER_FRAME), LIMIT(HEADERS_OVER_FRAME),
        LIMIT(ORIGIN_FOREIGN));
    failed = limits == NULL || PyModule_AddObjectRef(module, "LIMITS", limits) < 0;
    Py_XDECREF(limits);
    return failed ? -1 : 0;
}

static int fill(PyObject *module) {
    if (make_names() < 0 || make_secrets() < 0 || tell_twins(module) < 0) return -1;
    if (routes_type == NULL && (routes_type = (PyTypeObject *)PyType_FromSpec(&routes_spec)) == NULL) return -1;
    if (PyModule_AddObjectRef(module, "Routes", (PyObject *)routes_type) < 0) return -1;
    PyObject *columns = PyImport_ImportModule("heliograph.wire.columns");
    mixed = columns == NULL ? NULL : PyObject_GetAttrString(columns, "Mixed");
    Py_XDECREF(columns);
    PyObject *type = mixed == NULL ? NULL : PyType_FromSpec(&shortcut_spec);
    if (type == NULL) return -1;
    int done = PyModule_AddObjectRef(module, "Shortcut", type);
    Py_DECREF(type);
    return done;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "The hot path of a broker, compiled.", 0, functions, module_slots, NULL, NULL,
    NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
