/* Events as columns, compiled: a twin of the functions in events.py.

   In:    consecutive whole EVENT frames, as bytes; for read_events a list of such bytes.
   Out:   read_events: their topics, headers, payloads, ids and times as buffers in the layout of Arrow. select: which
          of them are wanted, as pieces of consecutive frames. HEAD and EVENT, for tests to compare.
   State: none.
   Not here: JSON in general. The parser below knows the plain JSON that clients write; any other header is left to
          Python.
   Long:  one file, so that an installation compiles only one. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little endian, and are read here as they are"
#endif

enum { HEAD = 28, EVENT = 1, DEPTH_MAX = 16, DIGITS_MAX = 18 };
/* The years 1 to 9999 in microseconds since 1970: other times fit no table (events.py has the same bounds). */
static const int64_t STAMP_MIN = -62135596800000000, STAMP_MAX = 253402300799999999;
enum { TOPICS = 1, HEADERS = 2, PAYLOADS = 4, TIMES = 8, IDS = 16 };

static uint32_t read32(const char *at) { uint32_t v; memcpy(&v, at, 4); return v; }
static uint64_t read64(const char *at) { uint64_t v; memcpy(&v, at, 8); return v; }

typedef struct {
    const char *topic, *headers, *payload, *end;
} Parts;

/* The parts of the frame at a place, with this many bytes left; 0 if there is no whole EVENT. */
static int parts_of(const char *at, Py_ssize_t left, Parts *parts) {
    if (left < HEAD || at[4] != EVENT) return 0;
    uint64_t size = 4 + (uint64_t)read32(at), topic = (uint8_t)at[6] | (uint32_t)(uint8_t)at[7] << 8;
    uint64_t headers = read32(at + 24);
    if (size > (uint64_t)left || HEAD + topic + headers > size) return 0;
    parts->topic = at + HEAD;
    parts->headers = parts->topic + topic;
    parts->payload = parts->headers + headers;
    parts->end = at + size;
    return 1;
}

/* -- headers: plain JSON ------------------------------------------------------------------------------------------ */

/* Each returns where its element ends, or NULL if in doubt. */
static const char *skip_text(const char *at, const char *end) {
    for (; at < end && *at != '"'; at++)
        if (*at < ' ' || *at > '~' || *at == '\\') return NULL;
    return at < end ? at + 1 : NULL;
}

static const char *skip_digits(const char *at, const char *end) {
    const char *start = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at == start || at - start > DIGITS_MAX || (*start == '0' && at - start > 1) ? NULL : at;
}

static const char *skip_number(const char *at, const char *end) {
    if (*at == '-' && ++at < end && *at == '0') return NULL;
    at = skip_digits(at, end);
    if (at != NULL && at < end && *at == '.') {
        const char *start = ++at;
        while (at < end && *at >= '0' && *at <= '9') at++;
        if (at == start || at - start > DIGITS_MAX) return NULL;
    }
    return at != NULL && at < end && (*at == ',' || *at == '}' || *at == ']') ? at : NULL;
}

static const char *skip_word(const char *at, const char *end, const char *word) {
    size_t size = strlen(word);
    return (size_t)(end - at) > size && memcmp(at, word, size) == 0 ? at + size : NULL;
}

static const char *skip_value(const char *at, const char *end, int depth) {
    if (at >= end || depth > DEPTH_MAX) return NULL;
    switch (*at) {
    case '"': return skip_text(at + 1, end);
    case 't': return skip_word(at, end, "true");
    case 'f': return skip_word(at, end, "false");
    case 'n': return skip_word(at, end, "null");
    case '[': case '{': break;
    default: return skip_number(at, end);
    }
    char closing = *at == '[' ? ']' : '}';
    if (++at < end && *at == closing) return at + 1;
    for (;;) {
        if (closing == '}') {
            if (at >= end || *at != '"' || (at = skip_text(at + 1, end)) == NULL) return NULL;
            if (at >= end || *at++ != ':') return NULL;
        }
        if ((at = skip_value(at, end, depth + 1)) == NULL || at >= end) return NULL;
        if (*at == closing) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

/* A whole number of at most DIGITS_MAX digits that ends here; 0 if it is another value. */
static int read_whole(const char *at, const char *end, int64_t *number) {
    int is_below = *at == '-';
    int64_t sum = 0;
    for (at += is_below; at < end; at++) {
        if (*at < '0' || *at > '9') return 0;
        sum = 10 * sum + (*at - '0');
    }
    *number = is_below ? -sum : sum;
    return 1;
}

/* The time of publication, if given, and whether the clock was synchronised; 0 if in doubt. */
static int read_times(const char *at, const char *end, int64_t *stamp, int *is_stamped, int *is_right) {
    *stamp = 0, *is_stamped = 0, *is_right = 1;
    if (at == end) return 1;
    if (*at++ != '{') return 0;
    if (at < end && *at == '}') return at + 1 == end;
    for (;;) {
        if (at >= end || *at != '"') return 0;
        const char *key = at + 1;
        if ((at = skip_text(key, end)) == NULL || at >= end || *at++ != ':' || at >= end) return 0;
        const char *value = at;
        if ((at = skip_value(value, end, 0)) == NULL || at >= end) return 0;
        if (value - key == 4 && key[0] == '$' && key[1] == 't') {
            *is_stamped = read_whole(value, at, stamp) && *stamp >= STAMP_MIN && *stamp <= STAMP_MAX;
            if (!*is_stamped) *stamp = 0;
        } else if (value - key == 4 && key[0] == '$' && key[1] == 'u') {
            if (*value != 't' && *value != 'f') return 0;
            *is_right = *value == 'f';
        }
        if (*at == '}') return at + 1 == end;
        if (*at++ != ',') return 0;
    }
}

/* The same by Python; -1 on failure. */
static int ask_times(PyObject *ask, const char *at, const char *end, int64_t *stamp, int *is_stamped, int *is_right) {
    PyObject *told = PyObject_CallFunction(ask, "y#", at, (Py_ssize_t)(end - at));
    if (told == NULL) return -1;
    PyObject *when = PyTuple_GetItem(told, 0), *right = PyTuple_GetItem(told, 1);
    *is_right = right == NULL ? -1 : PyObject_IsTrue(right);
    *is_stamped = when != NULL && when != Py_None;
    *stamp = *is_stamped ? PyLong_AsLongLong(when) : 0;
    Py_DECREF(told);
    return PyErr_Occurred() ? -1 : 0;
}

/* -- columns ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject *ends, *bytes; /* 32-bit offsets, one more than rows; the bytes they point into */
    int32_t *end;
    char *next;
} Texts;

static int open_texts(Texts *texts, int is_wanted, Py_ssize_t count, int64_t size) {
    texts->ends = PyBytes_FromStringAndSize(NULL, is_wanted ? 4 * (count + 1) : 0);
    texts->bytes = PyBytes_FromStringAndSize(NULL, is_wanted ? size : 0);
    if (texts->ends == NULL || texts->bytes == NULL) return -1;
    texts->end = is_wanted ? (int32_t *)PyBytes_AsString(texts->ends) : NULL;
    texts->next = PyBytes_AsString(texts->bytes);
    if (is_wanted) *texts->end = 0;
    return 0;
}

static void add_text(Texts *texts, const char *from, const char *to) {
    if (texts->end == NULL) return;
    memcpy(texts->next, from, to - from);
    texts->next += to - from;
    texts->end[1] = texts->end[0] + (int32_t)(to - from);
    texts->end++;
}

static void add_hex(char *to, uint64_t number) {
    for (int i = 15; i >= 0; i--, number >>= 4) to[i] = "0123456789abcdef"[number & 15];
}

static PyObject *read_events(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given != 3) return PyErr_Format(PyExc_TypeError, "read_events(pieces, wanted, times_of)");
    char *data;
    Py_ssize_t size, count = 0, pieces = PyList_Size(args[0]);
    if (pieces < 0) return NULL;
    long wanted = PyLong_AsLong(args[1]);
    if (wanted == -1 && PyErr_Occurred()) return NULL;
    int64_t topics = 0, headers = 0, payloads = 0, total = 0;
    Parts parts;
    for (Py_ssize_t piece = 0; piece < pieces; piece++) {
        if (PyBytes_AsStringAndSize(PyList_GetItem(args[0], piece), &data, &size) < 0) return NULL;
        if ((total += size) > INT32_MAX) return PyErr_Format(PyExc_ValueError, "more than 2 GiB at once");
        const char *last = data + size;
        for (const char *at = data; at < last; at = parts.end, count++) {
            if (!parts_of(at, last - at, &parts))
                return PyErr_Format(PyExc_ValueError, "no whole publication at %lld", (long long)(total - size + (at - data)));
            topics += parts.headers - parts.topic;
            headers += parts.payload - parts.headers;
            payloads += parts.end - parts.payload;
        }
    }
    Texts topic = {0}, header = {0}, payload = {0};
    Py_ssize_t times = wanted & TIMES ? count : 0, ids = wanted & IDS ? count : 0, bits = (times + 7) / 8;
    PyObject *origins = NULL, *sequences = NULL, *stamps = NULL, *stamped = NULL, *right = NULL, *made = NULL;
    if (open_texts(&topic, wanted & TOPICS, count, topics) < 0 || open_texts(&header, wanted & HEADERS, count, headers) < 0 ||
        open_texts(&payload, wanted & PAYLOADS, count, payloads) < 0 ||
        (origins = PyBytes_FromStringAndSize(NULL, 16 * ids)) == NULL ||
        (sequences = PyBytes_FromStringAndSize(NULL, 8 * ids)) == NULL ||
        (stamps = PyBytes_FromStringAndSize(NULL, 8 * times)) == NULL ||
        (stamped = PyBytes_FromStringAndSize(NULL, bits)) == NULL || (right = PyBytes_FromStringAndSize(NULL, bits)) == NULL)
        goto done;
    char *origin = PyBytes_AsString(origins), *sequence = PyBytes_AsString(sequences), *stamp = PyBytes_AsString(stamps);
    char *is_stamped = PyBytes_AsString(stamped), *is_right = PyBytes_AsString(right);
    memset(is_stamped, 0, bits);
    memset(is_right, 0, bits);
    uint64_t before = 0; /* the origin of the row before, which is usually the same */
    Py_ssize_t row = 0;
    for (Py_ssize_t piece = 0; piece < pieces; piece++) {
        if (PyBytes_AsStringAndSize(PyList_GetItem(args[0], piece), &data, &size) < 0) goto done;
        const char *last = data + size;
        for (const char *at = data; at < last && row < count; at = parts.end, row++) {
            if (!parts_of(at, last - at, &parts)) break; /* cannot happen: it was whole before */
            add_text(&topic, parts.topic, parts.headers);
            add_text(&header, parts.headers, parts.payload);
            add_text(&payload, parts.payload, parts.end);
            if (ids) {
                memcpy(sequence + 8 * row, at + 16, 8);
                if (row && read64(at + 8) == before) {
                    memcpy(origin + 16 * row, origin + 16 * (row - 1), 16);
                } else {
                    before = read64(at + 8);
                    add_hex(origin + 16 * row, before);
                }
            }
            if (times) {
                int64_t when;
                int has, ok;
                if (!read_times(parts.headers, parts.payload, &when, &has, &ok) &&
                    ask_times(args[2], parts.headers, parts.payload, &when, &has, &ok) < 0)
                    goto done;
                memcpy(stamp + 8 * row, &when, 8);
                is_stamped[row / 8] |= (char)(has << row % 8);
                is_right[row / 8] |= (char)(ok << row % 8);
            }
        }
    }
    made = Py_BuildValue("nOOOOOOOOOOO", count, topic.ends, topic.bytes, header.ends, header.bytes, payload.ends,
                         payload.bytes, origins, sequences, stamps, stamped, right);
done:
    for (Texts **each = (Texts *[]){&topic, &header, &payload, NULL}; *each != NULL; each++) {
        Py_XDECREF((*each)->ends);
        Py_XDECREF((*each)->bytes);
    }
    Py_XDECREF(origins);
    Py_XDECREF(sequences);
    Py_XDECREF(stamps);
    Py_XDECREF(stamped);
    Py_XDECREF(right);
    return made;
}

/* -- selecting ---------------------------------------------------------------------------------------------------- */

/* Whether a topic is wanted: 1 or 0; -1 on failure. */
static int is_wanted(PyObject *known, PyObject *wants, const char *topic, Py_ssize_t size) {
    PyObject *name = PyBytes_FromStringAndSize(topic, size);
    if (name == NULL) return -1;
    PyObject *said = PyDict_GetItemWithError(known, name);
    int told = -1;
    if (said != NULL) {
        told = PyObject_IsTrue(said);
    } else if (!PyErr_Occurred() && (said = PyObject_CallFunctionObjArgs(wants, name, NULL)) != NULL) {
        told = PyObject_IsTrue(said);
        Py_DECREF(said);
    }
    Py_DECREF(name);
    return told;
}

static int add_piece(PyObject *pieces, Py_ssize_t start, Py_ssize_t end, Py_ssize_t first, Py_ssize_t count) {
    if (!count) return 0;
    PyObject *piece = Py_BuildValue("nnnn", start, end, first, count);
    int failed = piece == NULL || PyList_Append(pieces, piece) < 0;
    Py_XDECREF(piece);
    return failed ? -1 : 0;
}

static PyObject *select_frames(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given != 6) return PyErr_Format(PyExc_TypeError, "select(data, skip, count_max, bytes_max, known, wants)");
    char *data;
    Py_ssize_t size, pos = 0, looked = 0, taken = 0, start = 0, first = 0, count = 0, topic_size = -1;
    if (PyBytes_AsStringAndSize(args[0], &data, &size) < 0) return NULL;
    Py_ssize_t skip = PyLong_AsSsize_t(args[1]), count_max = PyLong_AsSsize_t(args[2]), bytes_max = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred()) return NULL;
    Parts parts;
    for (; skip > 0 && parts_of(data + pos, size - pos, &parts); skip--) pos = parts.end - data;
    PyObject *pieces = PyList_New(0);
    const char *topic = NULL;
    int wanted = 0, failed = pieces == NULL;
    start = pos;
    while (!failed && !skip && looked < count_max && taken < bytes_max && parts_of(data + pos, size - pos, &parts)) {
        Py_ssize_t length = parts.headers - parts.topic, end = parts.end - data;
        if (length != topic_size || memcmp(topic, parts.topic, length) != 0) {
            topic = parts.topic, topic_size = length;
            if ((wanted = is_wanted(args[4], args[5], topic, length)) < 0) break;
        }
        if (wanted) {
            if (!count) start = pos, first = looked;
            count++;
            taken += end - pos;
        } else {
            failed = add_piece(pieces, start, pos, first, count) < 0;
            count = 0;
        }
        pos = end;
        looked++;
    }
    failed = failed || wanted < 0 || add_piece(pieces, start, pos, first, count) < 0;
    PyObject *made = failed ? NULL : Py_BuildValue("nnO", looked, taken, pieces);
    Py_XDECREF(pieces);
    return made;
}

static PyMethodDef functions[] = {
    {"read_events", (PyCFunction)(void (*)(void))read_events, METH_FASTCALL, "read_events(pieces, wanted, times_of): columns."},
    {"select", (PyCFunction)(void (*)(void))select_frames, METH_FASTCALL,
     "select(data, skip, count_max, bytes_max, known, wants): looked, bytes, pieces."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module) {
    return PyModule_AddIntConstant(module, "HEAD", HEAD) < 0 || PyModule_AddIntConstant(module, "EVENT", EVENT) < 0 ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_events", "Events as columns, compiled.", 0, functions, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__events(void) { return PyModuleDef_Init(&module); }
