/* Kernels: the compiled table of boxes, a twin of table.py and chunk.py.

   In:    boxes by id (dicts of keys.Interval), the attributes of an event, a box to compare with.
   Out:   Table: ids as packed 32-bit numbers in ascending order, first those that are certain, then those in doubt.
   State: chunks of 32,768 slots; in each, per attribute, rows of bits by bucket; per box, its bounds as 64-bit keys.
   Not here: what is in doubt (native.py compares the boxes themselves), the order of values (keys.py).
   Long:  one file, so that an installation compiles only one.

   A value is represented by a 64-bit key, in the order of the values. Finite floats use all keys between the two gaps
   that infinities and NaNs leave; below them are "absent" and "in no zone", above them strings and booleans. An integer
   that no float equals has the key of the float below it; a bound with such a key is a "tie", in doubt if keys are
   equal. The key of a string is a label: per chunk and attribute, the strings that occur in bounds are kept in order,
   each with a multiple of four; label - 1 and label + 1 are the places just before and after it, label + 2 is anything
   else up to the next. When there is no room between two labels, or too many strings no longer occur, all labels of
   this chunk and attribute are assigned again.

   A set bit rules a box out: see chunk.py. Growing adds a chunk, or widens one by 2,048 slots; no call touches more than
   one chunk's worth of memory, except a query, which reads one row per attribute and chunk. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

/* One compiled form for every processor of the last decade, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define WIDE __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef WIDE
#define WIDE
#endif
#if defined(__GNUC__) || defined(__clang__)
#define LOWEST_BIT(word) ((uint32_t)__builtin_ctzll(word))
#define FETCH(address) __builtin_prefetch(address)
#else
static uint32_t LOWEST_BIT(uint64_t word) { uint32_t n = 0; while (!(word >> n & 1)) n++; return n; }
#define FETCH(address) ((void)(address))
#endif

enum { SLOTS = 32768, WORDS = SLOTS / 64, SLOTS_FIRST = 256, SLOTS_STEP = 2048 };
enum { ROWS_MAX = 1024, ROWS_MIN = 6, ATTRIBUTE_ROWS_MAX = 256 }; /* per chunk; per attribute */
enum { SETTLED_MIN = 64, SAMPLE_MAX = 4096, WORDS_SLACK = 64 };
enum { ATTRIBUTES_MAX = 1 << 14, TIE_START = 1 << 15, TIE_END = 1 << 14, ATTRIBUTE = ATTRIBUTES_MAX - 1 };
enum { EVERYWHERE, NUMBER, TEXT, TRUTH }; /* zones, as in keys.py */
enum { MATCH, COVERERS, COVERED, INTERSECTING };
enum { BOXES, ADVERTISEMENTS, SUBSCRIPTIONS }; /* chunk.Stored */
enum { NO, YES, DOUBT };
enum { HOLED = 1, TIED = 2 };

#define ABSENT_KEY 0ull
#define ODD_KEY 1ull
#define NUMBER_FIRST 0x0010000000000000ull
#define TEXT_FIRST 0xFFF0000000000000ull
#define TRUTH_FIRST 0xFFFFFFFFFFFFFFF0ull
#define LABEL_STEP (1ull << 32)

typedef struct {
    PyObject **words; /* in order */
    uint64_t *labels;
    uint32_t count, room;
} Words;

typedef struct {
    uint16_t attribute;
    int exact;               /* every bound is a cut, none is a tie */
    uint32_t count, since;   /* boxes that name it; of them, since the cuts were chosen */
    uint32_t buckets, room;  /* rows are buckets + 1: row 0 is "absent" */
    uint64_t *cuts;          /* buckets - 1 keys, each the first of its bucket */
    uint16_t *order;         /* bucket -> row */
    uint64_t *rows;
    Words words;
} Column;

typedef struct {
    uint32_t count, doubtful; /* bounds; HOLED, TIED */
    uint64_t keys[];          /* first and last key of each bound; then the attributes with tie bits, 16 bits each */
} Entry;

typedef struct {
    uint32_t base, slots, count, doubtful, coarse;
    uint64_t *live;
    Entry **entries; /* a dead one stays until its slot is used again: its bits are still set */
    uint32_t *links;
    Column **columns;
    uint32_t column_count, column_room;
    int16_t *place; /* attribute -> column, -1: none */
    uint32_t place_room;
} Chunk;

typedef struct {
    PyObject_HEAD
    PyObject *names; /* attribute -> its number */
    uint32_t *uses;  /* by number: how many boxes name it */
    uint16_t *spare;
    uint32_t spare_count, attribute_top, attribute_room;
    Chunk **chunks;
    uint32_t chunk_count;
    uint32_t *ids, *doubts; /* of the answer being built */
    size_t id_count, id_room, doubt_count, doubt_room;
    uint64_t *keys, *lasts; /* by attribute: of the event, or of both ends of the queried box */
    uint8_t *ties;          /* by attribute: NAMED with TIED_START, TIED_END */
    PyObject **texts;       /* by attribute: the event's string */
} Table;

enum { NAMED = 1, TIED_START = 2, TIED_END = 4 };

static uint16_t *attributes_of(Entry *entry) { return (uint16_t *)(entry->keys + 2 * entry->count); }

static int no_memory(void) { PyErr_NoMemory(); return -1; }

/* Makes room for one more element of any kind; at least doubles while small. */
static int reserve(void *array, uint32_t *room, uint32_t count, size_t size) {
    if (count <= *room) return 0;
    uint32_t larger = *room + *room / 2 + 4;
    if (larger < count) larger = count;
    void *moved = realloc(*(void **)array, (size_t)larger * size);
    if (moved == NULL) return no_memory();
    *(void **)array = moved;
    *room = larger;
    return 0;
}

/* ---- keys ---- */

static uint64_t float_key(double value) {
    uint64_t bits;
    if (value == 0) value = 0; /* minus zero is zero */
    memcpy(&bits, &value, 8);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* The key of a number; *tied if it is the key of a float below it; ODD_KEY if the number is not in the order. */
static uint64_t number_key(PyObject *value, int *tied) {
    *tied = 0;
    if (PyFloat_Check(value)) {
        double number = PyFloat_AsDouble(value);
        return number - number == 0 ? float_key(number) : ODD_KEY;
    }
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return ODD_KEY;
    double nearest = (double)number;
    if (nearest >= 9223372036854775808.0) { *tied = 1; return float_key(nearest) - 1; }
    if ((long long)nearest == number) return float_key(nearest);
    *tied = 1;
    return float_key(nearest) - ((long long)nearest > number);
}

/* The place of a string among the words, and whether it is one of them. */
static uint32_t word_place(const Words *words, PyObject *text, int *found) {
    uint32_t low = 0, high = words->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = PyUnicode_Compare(words->words[middle], text);
        if (order == 0) { *found = 1; return middle; }
        if (order < 0) low = middle + 1; else high = middle;
    }
    *found = 0;
    return low;
}

static uint64_t text_key(const Words *words, PyObject *text) {
    int found;
    uint32_t place = word_place(words, text, &found);
    if (found) return words->labels[place];
    return (place ? words->labels[place - 1] : TEXT_FIRST) + 2;
}

/* A cut that ends in NUL lies just after the string without it: returns that string, or the cut itself. New reference. */
static PyObject *cut_word(PyObject *cut, int *behind) {
    Py_ssize_t length = PyUnicode_GetLength(cut);
    *behind = length > 0 && PyUnicode_ReadChar(cut, length - 1) == 0;
    if (*behind) return PyUnicode_Substring(cut, 0, length - 1);
    Py_INCREF(cut);
    return cut;
}

/* The first key at or after a cut, or with `last` the last key before it. */
static int text_cut_key(const Words *words, PyObject *cut, int last, uint64_t *key) {
    int behind, found;
    PyObject *word = cut_word(cut, &behind);
    if (word == NULL) return -1;
    uint32_t place = word_place(words, word, &found);
    Py_DECREF(word);
    if (found) *key = words->labels[place] + behind - last;
    else *key = (place ? words->labels[place - 1] : TEXT_FIRST) + 2;
    return 0;
}

/* Gives the cut's word a label if it has none; 0 if there is no room between its neighbours. */
static int keep_word(Words *words, PyObject *cut) {
    int behind, found;
    PyObject *word = cut_word(cut, &behind);
    if (word == NULL) return -1;
    uint32_t place = word_place(words, word, &found);
    if (found) { Py_DECREF(word); return 1; }
    uint64_t before = place ? words->labels[place - 1] : TEXT_FIRST;
    uint64_t behind_it = place < words->count ? words->labels[place] : TRUTH_FIRST - 16;
    uint64_t label = (before + (behind_it - before) / 2) & ~3ull;
    if (place == words->count && place && behind_it - before > 2 * LABEL_STEP) label = before + LABEL_STEP;
    else if (place == 0 && words->count && behind_it - before > 2 * LABEL_STEP) label = behind_it - LABEL_STEP;
    if (behind_it - before < 8) { Py_DECREF(word); return 0; }
    uint32_t room = words->room;
    if (reserve(&words->words, &room, words->count + 1, sizeof(PyObject *)) < 0 ||
        reserve(&words->labels, &words->room, words->count + 1, 8) < 0) { Py_DECREF(word); return -1; }
    memmove(words->words + place + 1, words->words + place, (words->count - place) * sizeof(PyObject *));
    memmove(words->labels + place + 1, words->labels + place, (words->count - place) * 8);
    words->words[place] = word;
    words->labels[place] = label;
    words->count++;
    return 1;
}

/* Both ends of an interval of the Python side as keys; the words of its strings have labels, or the ends lie in gaps. */
static int interval_keys(const Words *words, PyObject *interval, uint64_t *first, uint64_t *last, int *ties) {
    long zone = PyLong_AsLong(PyTuple_GetItem(interval, 0));
    PyObject *start = PyTuple_GetItem(interval, 1), *end = PyTuple_GetItem(interval, 2);
    int tied;
    *ties = 0;
    switch (zone) {
    case EVERYWHERE:
        *first = ODD_KEY, *last = UINT64_MAX;
        return 0;
    case NUMBER:
        *first = number_key(start, &tied);
        if (tied) *ties |= TIED_START;
        *last = TEXT_FIRST - 1;
        if (end == Py_None) return 0;
        *last = number_key(end, &tied) - 1;
        if (tied) *ties |= TIED_END, ++*last;
        return 0;
    case TEXT:
        *first = TEXT_FIRST, *last = TRUTH_FIRST - 1;
        if (PyUnicode_GetLength(start) > 0 && text_cut_key(words, start, 0, first) < 0) return -1;
        return end == Py_None ? 0 : text_cut_key(words, end, 1, last);
    default:
        *first = TRUTH_FIRST + (uint64_t)PyLong_AsLong(start);
        *last = TRUTH_FIRST + (uint64_t)PyLong_AsLong(end) - 1;
        return 0;
    }
}

/* ---- columns ---- */

static uint32_t bucket_of(const Column *column, uint64_t key) {
    const uint64_t *cuts = column->cuts;
    uint32_t low = 0, length = column->buckets - 1;
    while (length) {
        uint32_t half = length - length / 2;
        low += cuts[low + half - 1] <= key ? half : 0;
        length /= 2;
    }
    return low;
}

static uint64_t *row_of(const Chunk *chunk, const Column *column, uint32_t bucket) {
    return column->rows + (size_t)column->order[bucket] * (chunk->slots / 64);
}

static void free_words(Words *words) {
    for (uint32_t i = 0; i < words->count; i++) Py_DECREF(words->words[i]);
    free(words->words);
    free(words->labels);
    memset(words, 0, sizeof *words);
}

static void free_column(Column *column) {
    free_words(&column->words);
    free(column->cuts);
    free(column->order);
    free(column->rows);
    free(column);
}

/* Rows, cuts and order for this many buckets, all clear. */
static int lay_out(Chunk *chunk, Column *column, uint32_t buckets) {
    uint64_t *rows = calloc((size_t)(buckets + 1) * (chunk->slots / 64), 8);
    uint64_t *cuts = malloc((size_t)buckets * 8);
    uint16_t *order = malloc((size_t)buckets * 2);
    if (rows == NULL || cuts == NULL || order == NULL) { free(rows), free(cuts), free(order); return no_memory(); }
    free(column->rows), free(column->cuts), free(column->order);
    column->rows = rows, column->cuts = cuts, column->order = order;
    column->buckets = column->room = buckets;
    for (uint32_t bucket = 0; bucket < buckets; bucket++) order[bucket] = (uint16_t)(bucket + 1);
    return 0;
}

static int is_cut(const Column *column, uint64_t key) {
    uint32_t bucket = bucket_of(column, key);
    return bucket && column->cuts[bucket - 1] == key;
}

static uint32_t buckets_max(const Chunk *chunk) {
    uint32_t rows = ROWS_MAX / (chunk->column_count ? chunk->column_count : 1);
    return (rows > ATTRIBUTE_ROWS_MAX ? ATTRIBUTE_ROWS_MAX : rows < ROWS_MIN ? ROWS_MIN : rows) - 1;
}

/* Cuts a bucket in two at a key: the upper part gets a copy of the row. */
static int cut(Chunk *chunk, Column *column, uint64_t key) {
    uint32_t bucket = bucket_of(column, key), words = chunk->slots / 64;
    if (column->buckets == column->room) {
        uint32_t room = column->room + column->room / 2 + 2, most = buckets_max(chunk);
        if (room > most && column->room < most) room = most;
        uint64_t *rows = realloc(column->rows, (size_t)(room + 1) * words * 8);
        if (rows != NULL) column->rows = rows;
        uint64_t *cuts = realloc(column->cuts, (size_t)room * 8);
        if (cuts != NULL) column->cuts = cuts;
        uint16_t *order = realloc(column->order, (size_t)room * 2);
        if (order != NULL) column->order = order;
        if (rows == NULL || cuts == NULL || order == NULL) return no_memory();
        column->room = room;
    }
    memcpy(column->rows + (size_t)(column->buckets + 1) * words, row_of(chunk, column, bucket), (size_t)words * 8);
    memmove(column->cuts + bucket + 1, column->cuts + bucket, (column->buckets - 1 - bucket) * 8);
    memmove(column->order + bucket + 2, column->order + bucket + 1, (column->buckets - 1 - bucket) * 2);
    column->cuts[bucket] = key;
    column->order[bucket + 1] = (uint16_t)(column->buckets + 1);
    column->buckets++;
    return 0;
}

/* Writes a slot's bit: clear in the buckets that its interval touches, set in all others and in "absent". */
static void write_slot(Chunk *chunk, Column *column, uint32_t slot, uint64_t first, uint64_t last) {
    uint32_t words = chunk->slots / 64, low = bucket_of(column, first), high = bucket_of(column, last);
    uint64_t *rows = column->rows + slot / 64, bit = 1ull << slot % 64;
    rows[0] |= bit;
    for (uint32_t bucket = 0; bucket < low; bucket++) rows[(size_t)column->order[bucket] * words] |= bit;
    for (uint32_t bucket = low; bucket <= high; bucket++) rows[(size_t)column->order[bucket] * words] &= ~bit;
    for (uint32_t bucket = high + 1; bucket < column->buckets; bucket++)
        rows[(size_t)column->order[bucket] * words] |= bit;
}

static void clear_slot(Chunk *chunk, Column *column, uint32_t slot) {
    uint32_t words = chunk->slots / 64;
    for (uint32_t row = 0; row <= column->buckets; row++)
        column->rows[(size_t)row * words + slot / 64] &= ~(1ull << slot % 64);
}

static Column *column_of(const Chunk *chunk, uint32_t attribute) {
    if (attribute >= chunk->place_room || chunk->place[attribute] < 0) return NULL;
    return chunk->columns[chunk->place[attribute]];
}

static Column *new_column(Chunk *chunk, uint16_t attribute) {
    if (attribute >= chunk->place_room) {
        uint32_t before = chunk->place_room;
        if (reserve(&chunk->place, &chunk->place_room, attribute + 1u, 2) < 0) return NULL;
        for (uint32_t i = before; i < chunk->place_room; i++) chunk->place[i] = -1;
    }
    if (reserve(&chunk->columns, &chunk->column_room, chunk->column_count + 1, sizeof(Column *)) < 0) return NULL;
    Column *column = calloc(1, sizeof(Column));
    if (column == NULL) { no_memory(); return NULL; }
    column->attribute = attribute;
    column->exact = 1;
    if (lay_out(chunk, column, 1) < 0) { free_column(column); return NULL; }
    chunk->place[attribute] = (int16_t)chunk->column_count;
    chunk->columns[chunk->column_count++] = column;
    return column;
}

static void drop_column(Chunk *chunk, Column *column) {
    int16_t place = chunk->place[column->attribute];
    chunk->coarse -= !column->exact;
    chunk->columns[place] = chunk->columns[--chunk->column_count];
    chunk->place[chunk->columns[place]->attribute] = place;
    chunk->place[column->attribute] = -1;
    free_column(column);
}

static int is_live(const Chunk *chunk, uint32_t slot) {
    return slot < chunk->slots && chunk->live[slot / 64] >> slot % 64 & 1;
}

static int bound_of(Entry *entry, uint16_t attribute) {
    uint16_t *attributes = attributes_of(entry);
    for (uint32_t i = 0; i < entry->count; i++)
        if ((attributes[i] & ATTRIBUTE) == attribute) return (int)i;
    return -1;
}

static int by_key(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Chooses the cuts again, at equal distances among the bounds of the current boxes, and writes the rows. */
static int settle(Chunk *chunk, Column *column) {
    uint64_t *sample = malloc((SAMPLE_MAX + 2) * 8);
    if (sample == NULL) return no_memory();
    uint32_t most = buckets_max(chunk) - 1, count = 0, seen = 0, step = column->count / (SAMPLE_MAX / 2) + 1;
    for (uint32_t slot = 0; slot < chunk->slots; slot++) {
        int bound = is_live(chunk, slot) ? bound_of(chunk->entries[slot], column->attribute) : -1;
        if (bound < 0 || seen++ % step || count + 2 > SAMPLE_MAX) continue;
        uint64_t *keys = chunk->entries[slot]->keys + 2 * bound;
        if (keys[0] > ODD_KEY) sample[count++] = keys[0];
        if (keys[1] < UINT64_MAX) sample[count++] = keys[1] + 1;
    }
    qsort(sample, count, 8, by_key);
    uint32_t different = 0;
    for (uint32_t i = 0; i < count; i++) different += i == 0 || sample[i] != sample[i - 1];
    int all = different <= most;
    if (lay_out(chunk, column, (all ? different : most) + 1) < 0) { free(sample); return -1; }
    uint32_t cuts = 0, wanted = all ? count : most;
    for (uint32_t i = 0; i < wanted; i++) {
        uint64_t key = sample[all ? i : (uint32_t)((uint64_t)i * count / wanted)];
        if (cuts == 0 || column->cuts[cuts - 1] != key) column->cuts[cuts++] = key;
    }
    free(sample);
    column->buckets = cuts + 1;
    chunk->coarse -= !column->exact;
    column->exact = 1;
    for (uint32_t slot = 0; slot < chunk->slots; slot++) {
        int bound = is_live(chunk, slot) ? bound_of(chunk->entries[slot], column->attribute) : -1;
        if (bound < 0) continue;
        uint64_t *keys = chunk->entries[slot]->keys + 2 * bound;
        write_slot(chunk, column, slot, keys[0], keys[1]);
        if (attributes_of(chunk->entries[slot])[bound] & (TIE_START | TIE_END)) column->exact = 0;
        if (keys[0] > ODD_KEY && !is_cut(column, keys[0])) column->exact = 0;
        if (keys[1] < UINT64_MAX && !is_cut(column, keys[1] + 1)) column->exact = 0;
    }
    chunk->coarse += !column->exact;
    column->since = 0;
    return 0;
}

/* The place of the word that a key belongs to, -1 if it is the end of a zone or of another zone. */
static int word_of(const Words *words, uint64_t key) {
    uint64_t label = (key + 1) & ~3ull;
    uint32_t low = 0, high = words->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (words->labels[middle] < label) low = middle + 1; else high = middle;
    }
    return low < words->count && words->labels[low] == label ? (int)low : -1;
}

/* Forgets strings that occur in no box, gives all others labels at equal distances, and chooses the cuts again. */
static int relabel(Chunk *chunk, Column *column) {
    Words *words = &column->words;
    uint64_t *fresh = calloc(words->count + 1, 8); /* 0: occurs nowhere */
    if (fresh == NULL) return no_memory();
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t slot = 0; slot < chunk->slots; slot++) {
            int bound = is_live(chunk, slot) ? bound_of(chunk->entries[slot], column->attribute) : -1;
            if (bound < 0) continue;
            for (int end = 0; end < 2; end++) {
                uint64_t *key = chunk->entries[slot]->keys + 2 * bound + end;
                int word = word_of(words, *key);
                if (word >= 0 && pass == 0) fresh[word] = 1;
                else if (word >= 0) *key = fresh[word] + (*key - words->labels[word]);
            }
        }
        if (pass == 1) break;
        uint32_t mentioned = 0;
        for (uint32_t i = 0; i < words->count; i++) mentioned += fresh[i] != 0;
        uint64_t step = ((TRUTH_FIRST - TEXT_FIRST) / (mentioned + 2)) & ~3ull, label = TEXT_FIRST;
        for (uint32_t i = 0; i < words->count; i++)
            if (fresh[i]) fresh[i] = label += step;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < words->count; i++) {
        if (fresh[i] == 0) { Py_DECREF(words->words[i]); continue; }
        words->words[kept] = words->words[i];
        words->labels[kept++] = fresh[i];
    }
    words->count = kept;
    free(fresh);
    if (settle(chunk, column) == 0) return 0;
    PyErr_Clear(); /* no memory for rows: one bucket for all values is correct, but the old cuts are invalid now */
    memset(column->rows + chunk->slots / 64, 0, chunk->slots / 8);
    column->order[0] = 1, column->buckets = 1;
    chunk->coarse += column->exact;
    column->exact = 0;
    return 0;
}

/* ---- chunks ---- */

static void free_chunk(Chunk *chunk) {
    for (uint32_t i = 0; i < chunk->column_count; i++) free_column(chunk->columns[i]);
    for (uint32_t slot = 0; slot < chunk->slots; slot++) free(chunk->entries[slot]);
    free(chunk->columns), free(chunk->place), free(chunk->entries), free(chunk->links), free(chunk->live);
    free(chunk);
}

/* Makes a chunk wide enough for a slot. */
static int widen(Chunk *chunk, uint32_t slot) {
    uint32_t slots = SLOTS_FIRST, before = chunk->slots;
    if (slot < before) return 0;
    while (slots <= slot && slots < SLOTS_STEP) slots *= 2;
    if (slots <= slot) slots = (slot / SLOTS_STEP + 1) * SLOTS_STEP;
    uint64_t **rows = calloc(chunk->column_count + 1, sizeof *rows), *live = calloc(slots / 64, 8);
    Entry **entries = calloc(slots, sizeof(Entry *));
    uint32_t *links = calloc(slots, 4), i = 0;
    if (rows != NULL && live != NULL && entries != NULL && links != NULL)
        for (; i < chunk->column_count; i++) {
            rows[i] = calloc((size_t)(chunk->columns[i]->room + 1) * (slots / 64), 8);
            if (rows[i] == NULL) break;
        }
    if (rows == NULL || live == NULL || entries == NULL || links == NULL || i < chunk->column_count) {
        while (i > 0) free(rows[--i]);
        free(rows), free(live), free(entries), free(links);
        return no_memory();
    }
    for (i = 0; i < chunk->column_count; i++) {
        Column *column = chunk->columns[i];
        for (uint32_t row = 0; row <= column->buckets; row++)
            memcpy(rows[i] + (size_t)row * (slots / 64), column->rows + (size_t)row * (before / 64), before / 8);
        free(column->rows);
        column->rows = rows[i];
    }
    free(rows);
    if (before) {
        memcpy(live, chunk->live, before / 8);
        memcpy(entries, chunk->entries, before * sizeof(Entry *));
        memcpy(links, chunk->links, before * 4);
    }
    free(chunk->live), free(chunk->entries), free(chunk->links);
    chunk->live = live, chunk->entries = entries, chunk->links = links, chunk->slots = slots;
    return 0;
}

/* A bound of a new box: its strings get labels, its ends become cuts if there is room, its bit is written. */
static int put_bound(Chunk *chunk, uint32_t slot, Entry *entry, uint32_t number, uint16_t attribute, PyObject *interval) {
    Column *column = column_of(chunk, attribute);
    if (column == NULL && (column = new_column(chunk, attribute)) == NULL) return -1;
    column->count++; /* first of all: a later failure takes it back */
    uint64_t *keys = entry->keys + 2 * number;
    attributes_of(entry)[number] = attribute;
    if (PyLong_AsLong(PyTuple_GetItem(interval, 0)) == TEXT) {
        if (column->words.count > WORDS_SLACK + 4 * column->count && relabel(chunk, column) < 0) return -1;
        for (int tries = 0;; tries++) {
            PyObject *start = PyTuple_GetItem(interval, 1), *end = PyTuple_GetItem(interval, 2);
            int kept = PyUnicode_GetLength(start) > 0 ? keep_word(&column->words, start) : 1;
            if (kept == 1 && end != Py_None) kept = keep_word(&column->words, end);
            if (kept == 1) break;
            if (kept < 0 || tries || relabel(chunk, column) < 0) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "no room for a label after relabelling");
                return -1;
            }
        }
    }
    int ties;
    if (interval_keys(&column->words, interval, keys, keys + 1, &ties) < 0) return -1;
    if (ties & TIED_START) attributes_of(entry)[number] |= TIE_START;
    if (ties & TIED_END) attributes_of(entry)[number] |= TIE_END;
    if (ties) entry->doubtful |= TIED;
    uint64_t ends[2] = {keys[0] > ODD_KEY ? keys[0] : 0, keys[1] < UINT64_MAX ? keys[1] + 1 : 0};
    int missing = 0;
    for (int i = 0; i < 2; i++) missing += ends[i] && !is_cut(column, ends[i]);
    if (column->exact && (ties || column->buckets + (uint32_t)missing > buckets_max(chunk))) {
        column->exact = 0;
        chunk->coarse++;
    }
    for (int i = 0; i < 2 && column->exact; i++)
        if (ends[i] && !is_cut(column, ends[i]) && cut(chunk, column, ends[i]) < 0) return -1;
    write_slot(chunk, column, slot, keys[0], keys[1]);
    column->since++;
    return 0;
}

static void leave_column(Chunk *chunk, uint16_t attribute) {
    Column *column = column_of(chunk, attribute);
    if (column != NULL && --column->count == 0) drop_column(chunk, column);
}

/* ---- the table ---- */

static int attribute_number(Table *table, PyObject *name) {
    PyObject *known = PyDict_GetItemWithError(table->names, name);
    if (known != NULL) return (int)PyLong_AsLong(known);
    return PyErr_Occurred() ? -2 : -1;
}

static int new_attribute(Table *table, PyObject *name) {
    uint32_t number = table->spare_count ? table->spare[table->spare_count - 1] : table->attribute_top;
    if (number >= ATTRIBUTES_MAX) { PyErr_SetString(PyExc_ValueError, "too many attributes"); return -1; }
    if (number >= table->attribute_room) {
        uint32_t room = table->attribute_room ? table->attribute_room * 2 : 32, before = table->attribute_room;
        void *arrays[] = {&table->uses, &table->spare, &table->keys, &table->lasts, &table->ties, &table->texts};
        size_t sizes[] = {4, 2, 8, 8, 1, sizeof(PyObject *)};
        for (int i = 0; i < 6; i++) {
            void *moved = realloc(*(void **)arrays[i], room * sizes[i]);
            if (moved == NULL) return no_memory();
            memset((char *)moved + before * sizes[i], 0, (room - before) * sizes[i]);
            *(void **)arrays[i] = moved;
        }
        table->attribute_room = room;
    }
    PyObject *value = PyLong_FromLong((long)number);
    if (value == NULL || PyDict_SetItem(table->names, name, value) < 0) { Py_XDECREF(value); return -1; }
    Py_DECREF(value);
    if (table->spare_count) table->spare_count--; else table->attribute_top++;
    table->uses[number] = 0;
    return (int)number;
}

/* One box less names this attribute; an unused name is dropped, and its number is free. */
static int leave_attribute(Table *table, uint32_t number) {
    if (--table->uses[number]) return 0;
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(table->names, &position, &name, &value)) {
        if (PyLong_AsLong(value) != (long)number) continue;
        Py_INCREF(name);
        int done = PyDict_DelItem(table->names, name);
        Py_DECREF(name);
        if (done < 0) return -1;
        break;
    }
    table->spare[table->spare_count++] = (uint16_t)number;
    return 0;
}

static Chunk *chunk_of(Table *table, uint32_t id) {
    return id / SLOTS < table->chunk_count ? table->chunks[id / SLOTS] : NULL;
}

static Chunk *chunk_for(Table *table, uint32_t id) {
    uint32_t number = id / SLOTS;
    if (number >= table->chunk_count) {
        Chunk **chunks = realloc(table->chunks, (number + 1) * sizeof *chunks);
        if (chunks == NULL) { no_memory(); return NULL; }
        memset(chunks + table->chunk_count, 0, (number + 1 - table->chunk_count) * sizeof *chunks);
        table->chunks = chunks, table->chunk_count = number + 1;
    }
    Chunk *chunk = table->chunks[number];
    if (chunk == NULL) {
        chunk = table->chunks[number] = calloc(1, sizeof *chunk);
        if (chunk == NULL) { no_memory(); return NULL; }
        chunk->base = number * SLOTS;
    }
    return widen(chunk, id % SLOTS) < 0 ? NULL : chunk;
}

static void prune_chunk(Table *table, uint32_t id) {
    Chunk *chunk = chunk_of(table, id);
    if (chunk == NULL || chunk->count) return;
    free_chunk(chunk);
    table->chunks[id / SLOTS] = NULL;
}

/* Clears what a dead box left in a slot. */
static void sweep(Chunk *chunk, uint32_t slot) {
    Entry *dead = chunk->entries[slot];
    if (dead == NULL) return;
    for (uint32_t i = 0; i < dead->count; i++) {
        Column *column = column_of(chunk, attributes_of(dead)[i] & ATTRIBUTE);
        if (column != NULL) clear_slot(chunk, column, slot);
    }
    free(dead);
    chunk->entries[slot] = NULL;
}

static int is_box(PyObject *box) {
    PyObject *name, *interval;
    Py_ssize_t position = 0;
    if (!PyDict_Check(box)) { PyErr_SetString(PyExc_TypeError, "a box is a dict"); return 0; }
    while (PyDict_Next(box, &position, &name, &interval)) {
        if (!PyUnicode_Check(name) || !PyTuple_Check(interval) || PyTuple_Size(interval) != 4) goto wrong;
        PyObject *zone = PyTuple_GetItem(interval, 0), *start = PyTuple_GetItem(interval, 1);
        PyObject *end = PyTuple_GetItem(interval, 2);
        if (!PyLong_Check(zone)) goto wrong;
        long number = PyLong_AsLong(zone);
        if (number == NUMBER && (PyLong_Check(start) || PyFloat_Check(start)) &&
            (PyLong_Check(end) || PyFloat_Check(end) || end == Py_None)) continue;
        if (number == TEXT && PyUnicode_Check(start) && (PyUnicode_Check(end) || end == Py_None)) continue;
        if (number == TRUTH && PyLong_Check(start) && PyLong_Check(end)) continue;
        if (number == EVERYWHERE) continue;
    wrong:
        PyErr_SetString(PyExc_TypeError, "a box maps names to intervals");
        return 0;
    }
    return 1;
}

static PyObject *table_put(Table *table, PyObject *arguments) {
    long long wanted, its_link;
    PyObject *box, *name, *interval;
    int holed;
    if (!PyArg_ParseTuple(arguments, "LLOp", &wanted, &its_link, &box, &holed)) return NULL;
    if (wanted < 0 || wanted > INT32_MAX || its_link < 0 || its_link > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "an id has at most 31 bits, a link 32");
        return NULL;
    }
    if (!is_box(box)) return NULL;
    uint32_t id = (uint32_t)wanted, link = (uint32_t)its_link;
    Chunk *chunk = chunk_for(table, id);
    if (chunk == NULL) return NULL;
    uint32_t slot = id % SLOTS, done = 0;
    if (is_live(chunk, slot)) { PyErr_SetString(PyExc_ValueError, "the id is taken"); return NULL; }
    sweep(chunk, slot);
    size_t count = (size_t)PyDict_Size(box);
    Entry *entry = calloc(1, sizeof *entry + count * 18);
    if (entry == NULL) { no_memory(); return NULL; }
    entry->count = (uint32_t)count;
    entry->doubtful = holed ? HOLED : 0;
    Py_ssize_t position = 0;
    while (PyDict_Next(box, &position, &name, &interval)) {
        int number = attribute_number(table, name);
        if (number == -1) number = new_attribute(table, name);
        if (number < 0) goto failed;
        table->uses[number]++;
        attributes_of(entry)[done++] = (uint16_t)number;
        if (put_bound(chunk, slot, entry, done - 1, (uint16_t)number, interval) < 0) goto failed;
    }
    chunk->entries[slot] = entry;
    chunk->links[slot] = link;
    chunk->live[slot / 64] |= 1ull << slot % 64;
    chunk->count++;
    chunk->doubtful += entry->doubtful != 0;
    for (uint32_t i = 0; i < entry->count; i++) { /* one at a time: no single call pays for the cuts of all attributes */
        Column *column = column_of(chunk, attributes_of(entry)[i] & ATTRIBUTE);
        uint32_t half = column->count / 2;
        if (column->exact || column->since <= (half > SETTLED_MIN ? half : SETTLED_MIN)) continue;
        if (settle(chunk, column) < 0) PyErr_Clear(); /* no memory for better cuts: the existing ones are still correct */
        break;
    }
    return PyBool_FromLong(entry->doubtful != 0);
failed: /* out of memory, most likely: take back what was done, so that the table stays as it was */
    for (uint32_t i = 0; i < done; i++) {
        uint16_t number = attributes_of(entry)[i] & ATTRIBUTE;
        Column *column = column_of(chunk, number);
        if (column != NULL) clear_slot(chunk, column, slot);
        leave_column(chunk, number);
        if (leave_attribute(table, number) < 0) break;
    }
    free(entry);
    prune_chunk(table, id);
    return NULL;
}

static PyObject *table_drop(Table *table, PyObject *argument) {
    unsigned long id = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred()) return NULL;
    Chunk *chunk = id > INT32_MAX ? NULL : chunk_of(table, (uint32_t)id);
    uint32_t slot = (uint32_t)(id % SLOTS);
    if (chunk == NULL || !is_live(chunk, slot)) { PyErr_SetObject(PyExc_KeyError, argument); return NULL; }
    Entry *entry = chunk->entries[slot];
    uint32_t link = chunk->links[slot];
    chunk->live[slot / 64] &= ~(1ull << slot % 64);
    chunk->count--;
    chunk->doubtful -= entry->doubtful != 0;
    for (uint32_t i = 0; i < entry->count; i++) {
        uint16_t number = attributes_of(entry)[i] & ATTRIBUTE;
        leave_column(chunk, number);
        if (leave_attribute(table, number) < 0) return NULL;
    }
    prune_chunk(table, (uint32_t)id);
    return PyLong_FromUnsignedLong(link);
}

static int table_contains(Table *table, PyObject *argument) {
    unsigned long id = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred()) { PyErr_Clear(); return 0; }
    Chunk *chunk = id > INT32_MAX ? NULL : chunk_of(table, (uint32_t)id);
    return chunk != NULL && is_live(chunk, (uint32_t)(id % SLOTS));
}

/* ---- queries ---- */

static int room_for(uint32_t **numbers, size_t *room, size_t count) {
    if (count <= *room) return 0;
    size_t larger = count + count / 2 + 1024;
    uint32_t *moved = realloc(*numbers, larger * 4);
    if (moved == NULL) return no_memory();
    *numbers = moved, *room = larger;
    return 0;
}

WIDE static void or_row(uint64_t *restrict out, const uint64_t *restrict row, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) out[i] |= row[i];
}

WIDE static void or_rows(uint64_t *restrict out, const uint64_t *const *rows, uint32_t words) {
    const uint64_t *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    for (uint32_t i = 0; i < words; i++) out[i] |= (a[i] | b[i]) | (c[i] | d[i]);
}

WIDE static void or_not_row(uint64_t *restrict out, const uint64_t *restrict row, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) out[i] |= ~row[i];
}

WIDE static void and_row(uint64_t *restrict out, const uint64_t *restrict row, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) out[i] &= row[i];
}

/* Compares an end of a stored interval with that of the queried box. Different keys decide; equal keys are in doubt if
   the stored one is tied; if only the other one is, the answer is `then`. */
static int compare(uint64_t low, uint64_t high, int stored_tied, int asked_tied, int then) {
    if (low != high) return low < high;
    return stored_tied ? DOUBT : asked_tied ? then : YES;
}

/* Compares one stored box with the event (MATCH) or the queried box, whose keys are in the table by attribute. */
static int judge(const Table *table, Entry *entry, int mode, int stored, uint32_t asked) {
    const uint16_t *attributes = attributes_of(entry);
    int answer = entry->doubtful & HOLED ? DOUBT : YES;
    uint32_t common = 0;
    for (uint32_t i = 0; i < entry->count; i++) {
        uint32_t number = attributes[i] & ATTRIBUTE;
        uint64_t first = entry->keys[2 * i], last = entry->keys[2 * i + 1], from = table->keys[number];
        if (mode == MATCH) {
            if (from < first || from > last) return NO;
            if (from == first && attributes[i] & TIE_START) answer = DOUBT;
            if (from == last && attributes[i] & TIE_END) answer = DOUBT;
            continue;
        }
        int named = table->ties[number], tied = attributes[i], low, high;
        if (!named) {
            if (mode == COVERERS || (mode == INTERSECTING && stored == SUBSCRIPTIONS)) return NO;
            continue;
        }
        uint64_t to = table->lasts[number];
        common++;
        if (mode == COVERERS) {
            low = compare(first, from, tied & TIE_START, named & TIED_START, YES);
            high = compare(to, last, tied & TIE_END, named & TIED_END, YES);
        } else if (mode == COVERED) {
            low = compare(from, first, tied & TIE_START, named & TIED_START, NO);
            high = compare(last, to, tied & TIE_END, named & TIED_END, NO);
        } else {
            low = compare(first, to, tied & TIE_START, named & TIED_END, YES);
            high = compare(from, last, tied & TIE_END, named & TIED_START, YES);
        }
        if (low == NO || high == NO) return NO;
        if (low == DOUBT || high == DOUBT) answer = DOUBT;
    }
    if (common < asked && (mode == COVERED || (mode == INTERSECTING && stored == ADVERTISEMENTS))) return NO;
    return answer;
}

/* Records the slots that no row ruled out; if rows are not exact, each box is checked. */
static int collect(Table *table, Chunk *chunk, const uint64_t *out, int mode, int stored, uint32_t asked, int sure) {
    uint32_t words = chunk->slots / 64, count = 0;
    if (room_for(&table->ids, &table->id_room, table->id_count + chunk->slots) < 0) return -1;
    uint32_t *ids = table->ids + table->id_count, base = chunk->base;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t left = ~out[i];
        for (; left; left &= left - 1) ids[count++] = base + i * 64 + LOWEST_BIT(left);
    }
    if (sure) { table->id_count += count; return 0; }
    if (room_for(&table->doubts, &table->doubt_room, table->doubt_count + count) < 0) return -1;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i + 8 < count) FETCH(chunk->entries[ids[i + 8] - base]);
        int answer = judge(table, chunk->entries[ids[i] - base], mode, stored, asked);
        if (answer == DOUBT) table->doubts[table->doubt_count++] = ids[i];
        ids[kept] = ids[i];
        kept += answer == YES;
    }
    table->id_count += kept;
    return 0;
}

/* The rows that rule boxes out for the event whose keys are in the table. */
static void stab(Table *table, Chunk *chunk, uint64_t *out) {
    uint32_t words = chunk->slots / 64, waiting = 0;
    const uint64_t *rows[4];
    for (uint32_t i = 0; i < words; i++) out[i] = ~chunk->live[i];
    for (uint32_t i = 0; i < chunk->column_count; i++) {
        Column *column = chunk->columns[i];
        uint32_t number = column->attribute;
        if (table->texts[number] != NULL) table->keys[number] = text_key(&column->words, table->texts[number]);
        uint64_t key = table->keys[number];
        rows[waiting++] = key == ABSENT_KEY ? column->rows : row_of(chunk, column, bucket_of(column, key));
        if (waiting == 4) or_rows(out, rows, words), waiting = 0;
    }
    while (waiting) or_row(out, rows[--waiting], words);
}

static int event_key(Table *table, PyObject *name, PyObject *value) {
    int number = PyUnicode_Check(name) ? attribute_number(table, name) : -1, tied;
    if (number < 0) return number == -1 ? 0 : -1;
    uint64_t key = ODD_KEY;
    if (PyBool_Check(value)) key = TRUTH_FIRST + (value == Py_True);
    else if (PyLong_CheckExact(value) || PyFloat_CheckExact(value)) key = number_key(value, &tied);
    else if (PyUnicode_CheckExact(value)) table->texts[number] = value;
    else if (value == Py_None) key = ABSENT_KEY;
    table->keys[number] = key;
    return 0;
}

/* Puts the keys of an event into the table, by attribute. */
static int read_event(Table *table, PyObject *event) {
    PyObject *name, *value;
    Py_ssize_t position = 0;
    if (!PyDict_Check(event)) { PyErr_SetString(PyExc_TypeError, "attributes are a dict"); return -1; }
    if (table->attribute_top) {
        memset(table->keys, 0, table->attribute_top * 8);
        memset(table->texts, 0, table->attribute_top * sizeof(PyObject *));
    }
    table->id_count = table->doubt_count = 0;
    if (PyDict_Size(event) > 2 * PyDict_Size(table->names)) {
        while (PyDict_Next(table->names, &position, &name, &value)) {
            PyObject *found = PyDict_GetItemWithError(event, name);
            if (found == NULL && PyErr_Occurred()) return -1;
            if (found != NULL && event_key(table, name, found) < 0) return -1;
        }
        return 0;
    }
    while (PyDict_Next(event, &position, &name, &value))
        if (event_key(table, name, value) < 0) return -1;
    return 0;
}

static PyObject *answer_of(Table *table) {
    PyObject *ids = PyBytes_FromStringAndSize((char *)table->ids, (Py_ssize_t)table->id_count * 4);
    PyObject *doubts = PyBytes_FromStringAndSize((char *)table->doubts, (Py_ssize_t)table->doubt_count * 4);
    PyObject *both = ids != NULL && doubts != NULL ? PyTuple_Pack(2, ids, doubts) : NULL;
    Py_XDECREF(ids);
    Py_XDECREF(doubts);
    return both;
}

static PyObject *table_match(Table *table, PyObject *event) {
    uint64_t out[WORDS];
    if (read_event(table, event) < 0) return NULL;
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        Chunk *chunk = table->chunks[i];
        if (chunk == NULL) continue;
        stab(table, chunk, out);
        if (collect(table, chunk, out, MATCH, 0, 0, !chunk->coarse && !chunk->doubtful) < 0) return NULL;
    }
    return answer_of(table);
}

/* Adds the links of matching boxes to a dict, until it has this many; returns boxes in doubt, each as id and link. */
static PyObject *table_match_links(Table *table, PyObject *arguments) {
    uint64_t out[WORDS];
    PyObject *event, *links;
    Py_ssize_t links_max;
    if (!PyArg_ParseTuple(arguments, "OO!n", &event, &PyDict_Type, &links, &links_max)) return NULL;
    if (read_event(table, event) < 0) return NULL;
    uint64_t known_links[256]; /* by their last bits: avoids most look-ups in the dict */
    memset(known_links, 0xFF, sizeof known_links);
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        Chunk *chunk = table->chunks[i];
        if (chunk == NULL) continue;
        int sure = !chunk->coarse && !chunk->doubtful;
        stab(table, chunk, out);
        for (uint32_t word = 0; word < chunk->slots / 64; word++)
            for (uint64_t left = ~out[word]; left; left &= left - 1) {
                uint32_t slot = word * 64 + LOWEST_BIT(left), link = chunk->links[slot];
                if (known_links[link % 256] == link) continue;
                PyObject *number = PyLong_FromUnsignedLong(link);
                if (number == NULL) return NULL;
                int known = PyDict_Contains(links, number);
                int answer = known ? NO : sure ? YES : judge(table, chunk->entries[slot], MATCH, 0, 0);
                if (known == 1 || answer == YES) known_links[link % 256] = link;
                if (answer == DOUBT) {
                    if (room_for(&table->doubts, &table->doubt_room, table->doubt_count + 2) < 0) known = -1;
                    else {
                        table->doubts[table->doubt_count++] = chunk->base + slot;
                        table->doubts[table->doubt_count++] = link;
                    }
                } else if (answer == YES && PyDict_SetItem(links, number, Py_None) < 0) known = -1;
                Py_DECREF(number);
                if (known < 0) return NULL;
                if (PyDict_Size(links) >= links_max) return PyBytes_FromStringAndSize(NULL, 0);
            }
    }
    return PyBytes_FromStringAndSize((char *)table->doubts, (Py_ssize_t)table->doubt_count * 4);
}

/* The rows that rule boxes out for the queried box; 1 if all boxes of this chunk are ruled out. *sure: the rows are
   exact. Boxes that contain both ends of it enclose it; boxes that touch one of its buckets intersect it, if its ends
   are cuts; whether it encloses a box has to be checked. */
static int rule_out(Table *table, Chunk *chunk, uint64_t *out, int mode, int stored, PyObject *box, int *sure) {
    uint32_t words = chunk->slots / 64;
    uint64_t all[WORDS];
    PyObject *name, *interval;
    Py_ssize_t position = 0;
    *sure = mode != COVERED && !chunk->coarse && !chunk->doubtful;
    for (uint32_t i = 0; i < words; i++) out[i] = ~chunk->live[i];
    while (PyDict_Next(box, &position, &name, &interval)) {
        int number = attribute_number(table, name), ties;
        if (number < -1) return -1;
        Column *column = number < 0 ? NULL : column_of(chunk, (uint32_t)number);
        int needed = mode == COVERED || (mode == INTERSECTING && stored == ADVERTISEMENTS);
        if (column == NULL) {
            if (needed) return 1;
            continue;
        }
        uint64_t *first = table->keys + number, *last = table->lasts + number;
        if (interval_keys(&column->words, interval, first, last, &ties) < 0) return -1;
        table->ties[number] = (uint8_t)(NAMED | ties);
        if (mode == INTERSECTING && (ties || (*first > ODD_KEY && !is_cut(column, *first)) ||
                                     (*last < UINT64_MAX && !is_cut(column, *last + 1)))) *sure = 0;
        uint32_t low = bucket_of(column, *first), high = bucket_of(column, *last);
        if (needed) or_not_row(out, column->rows, words);
        if (mode == COVERERS) {
            or_row(out, row_of(chunk, column, low), words);
            if (high != low) or_row(out, row_of(chunk, column, high), words);
        } else if (mode == COVERED) {
            if (low > 0) or_not_row(out, row_of(chunk, column, low - 1), words);
            if (high + 1 < column->buckets) or_not_row(out, row_of(chunk, column, high + 1), words);
        } else {
            memcpy(all, row_of(chunk, column, low), words * 8);
            for (uint32_t bucket = low + 1; bucket <= high; bucket++) and_row(all, row_of(chunk, column, bucket), words);
            or_row(out, all, words);
        }
    }
    if (mode == COVERERS || (mode == INTERSECTING && stored == SUBSCRIPTIONS))
        for (uint32_t i = 0; i < chunk->column_count; i++)
            if (!table->ties[chunk->columns[i]->attribute]) or_row(out, chunk->columns[i]->rows, words);
    return 0;
}

static PyObject *table_relate(Table *table, PyObject *arguments) {
    uint64_t out[WORDS];
    int mode, stored, sure;
    PyObject *box;
    if (!PyArg_ParseTuple(arguments, "iOi", &mode, &box, &stored)) return NULL;
    if (mode < COVERERS || mode > INTERSECTING || stored < BOXES || stored > SUBSCRIPTIONS) {
        PyErr_SetString(PyExc_ValueError, "no such question");
        return NULL;
    }
    if (!is_box(box)) return NULL;
    table->id_count = table->doubt_count = 0;
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        Chunk *chunk = table->chunks[i];
        if (chunk == NULL) continue;
        if (table->attribute_top) memset(table->ties, 0, table->attribute_top);
        int none = rule_out(table, chunk, out, mode, stored, box, &sure);
        if (none < 0) return NULL;
        if (!none && collect(table, chunk, out, mode, stored, (uint32_t)PyDict_Size(box), sure) < 0) return NULL;
    }
    return answer_of(table);
}

static PyObject *table_ids(Table *table, PyObject *Py_UNUSED(nothing)) {
    uint64_t out[WORDS];
    table->id_count = table->doubt_count = 0;
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        Chunk *chunk = table->chunks[i];
        if (chunk == NULL) continue;
        for (uint32_t word = 0; word < chunk->slots / 64; word++) out[word] = ~chunk->live[word];
        if (collect(table, chunk, out, MATCH, 0, 0, 1) < 0) return NULL;
    }
    return PyBytes_FromStringAndSize((char *)table->ids, (Py_ssize_t)table->id_count * 4);
}

/* ---- inspection ---- */

static PyObject *number_of(uint64_t key) {
    uint64_t bits = key >> 63 ? key & ~(1ull << 63) : ~key;
    double number;
    memcpy(&number, &bits, 8);
    return PyFloat_FromDouble(number);
}

/* A cut as the string before which it lies. */
static PyObject *text_of(const Words *words, uint64_t key) {
    int word = word_of(words, key);
    if (word < 0) return PyUnicode_FromString("");
    if (key > words->labels[word]) return PyUnicode_FromFormat("%U%c", words->words[word], 0);
    Py_INCREF(words->words[word]);
    return words->words[word];
}

/* The intervals of a box that has neither holes nor ties, as (attribute number, zone, start, end). */
static PyObject *table_bounds(Table *table, PyObject *argument) {
    if (!table_contains(table, argument)) { PyErr_SetObject(PyExc_KeyError, argument); return NULL; }
    uint32_t id = (uint32_t)PyLong_AsUnsignedLong(argument);
    Chunk *chunk = chunk_of(table, id);
    Entry *entry = chunk->entries[id % SLOTS];
    PyObject *found = PyList_New(0);
    for (uint32_t i = 0; found != NULL && i < entry->count; i++) {
        uint16_t number = attributes_of(entry)[i] & ATTRIBUTE;
        const Words *words = &column_of(chunk, number)->words;
        uint64_t first = entry->keys[2 * i], last = entry->keys[2 * i + 1];
        PyObject *start = NULL, *end = NULL, *bound = NULL;
        int zone = first >= TRUTH_FIRST ? TRUTH : first >= TEXT_FIRST ? TEXT : first >= NUMBER_FIRST ? NUMBER : EVERYWHERE;
        if (zone == NUMBER) {
            start = number_of(first);
            end = last == TEXT_FIRST - 1 ? Py_NewRef(Py_None) : number_of(last + 1);
        } else if (zone == TEXT) {
            start = text_of(words, first);
            end = last == TRUTH_FIRST - 1 ? Py_NewRef(Py_None) : text_of(words, last + 1);
        } else if (zone == TRUTH) {
            start = PyLong_FromUnsignedLongLong(first - TRUTH_FIRST);
            end = PyLong_FromUnsignedLongLong(last - TRUTH_FIRST + 1);
        } else {
            start = Py_NewRef(Py_None);
            end = Py_NewRef(Py_None);
        }
        if (start != NULL && end != NULL) bound = Py_BuildValue("(iiOO)", (int)number, zone, start, end);
        Py_XDECREF(start);
        Py_XDECREF(end);
        if (bound == NULL || PyList_Append(found, bound) < 0) Py_CLEAR(found);
        Py_XDECREF(bound);
    }
    return found;
}

static PyObject *table_size(Table *table, PyObject *Py_UNUSED(nothing)) {
    size_t size = 0;
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        Chunk *chunk = table->chunks[i];
        if (chunk == NULL) continue;
        size += sizeof *chunk + chunk->slots * (sizeof(Entry *) + 4) + chunk->slots / 8 + chunk->place_room * 2;
        for (uint32_t slot = 0; slot < chunk->slots; slot++) /* as malloc rounds: 8 bytes of overhead, then up to a multiple of 16 */
            if (chunk->entries[slot] != NULL) size += (sizeof(Entry) + chunk->entries[slot]->count * 18 + 23) & ~15ull;
        for (uint32_t j = 0; j < chunk->column_count; j++) {
            Column *column = chunk->columns[j];
            size += sizeof *column + (size_t)(column->room + 1) * (chunk->slots / 8) + column->room * 10u;
            size += column->words.room * 16u;
        }
    }
    return PyLong_FromSize_t(size);
}

static PyObject *table_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    if (!PyArg_ParseTuple(arguments, "") || (keywords != NULL && PyDict_Size(keywords))) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a table takes no arguments");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Table *table = (Table *)allocate(type, 0);
    if (table == NULL) return NULL;
    table->names = PyDict_New();
    if (table->names == NULL) { Py_DECREF(table); return NULL; }
    return (PyObject *)table;
}

static void table_free(Table *table) {
    PyTypeObject *type = Py_TYPE((PyObject *)table);
    for (uint32_t i = 0; i < table->chunk_count; i++)
        if (table->chunks[i] != NULL) free_chunk(table->chunks[i]);
    free(table->chunks), free(table->ids), free(table->doubts);
    free(table->uses), free(table->spare), free(table->keys), free(table->lasts), free(table->ties), free(table->texts);
    Py_XDECREF(table->names);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(table);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)table_put, METH_VARARGS, "put(id, link, box, holed): True if it can be in doubt."},
    {"drop", (PyCFunction)table_drop, METH_O, "drop(id): its link."},
    {"ids", (PyCFunction)table_ids, METH_NOARGS, "All ids."},
    {"match", (PyCFunction)table_match, METH_O, "match(attributes): ids, ids in doubt."},
    {"match_links", (PyCFunction)table_match_links, METH_VARARGS, "match_links(attributes, links, links_max): ids and links in doubt."},
    {"relate", (PyCFunction)table_relate, METH_VARARGS, "relate(mode, box, stored): ids, ids in doubt."},
    {"bounds", (PyCFunction)table_bounds, METH_O, "bounds(id): (attribute, zone, start, end) each."},
    {"size", (PyCFunction)table_size, METH_NOARGS, "Memory in bytes."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"names", T_OBJECT_EX, offsetof(Table, names), READONLY, "Attributes and their numbers."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, table_new},         {Py_tp_dealloc, table_free}, {Py_tp_methods, methods},
    {Py_tp_members, members},       {Py_sq_contains, table_contains},
    {Py_tp_doc, "Boxes by id."},    {0, NULL},
};

static PyType_Spec spec = {"heliograph.matching.boxes._kernels.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, slots};

static int fill(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL) return -1;
    int done = PyModule_AddObjectRef(module, "Table", type);
    Py_DECREF(type);
    return done;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "The compiled table of boxes.", 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&module); }
