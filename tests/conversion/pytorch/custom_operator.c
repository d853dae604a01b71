/* A custom operator for ONNX Runtime: onnxtool_tests::twice(x: float, k) = 2 * k * x.
 *
 * The functions of the runtime's C API stand in a table whose order never changes, so the few that are needed here are
 * called by their place in it. A library of your own includes onnxruntime_c_api.h from the runtime's release instead.
 */
#include <stddef.h>
#include <stdint.h>

enum {
  CREATE_DOMAIN = 26,
  ADD_TO_DOMAIN = 27,
  ADD_DOMAIN = 28,
  TENSOR_DATA = 51,
  RANK = 61,
  DIMS = 62,
  ELEMENTS = 64,
  SHAPE_OF = 65,
  FLOAT_ATTRIBUTE = 85,
  INPUT = 90,
  OUTPUT = 91,
  RELEASE_SHAPE = 99
};
enum { API_VERSION = 10, FLOAT_TENSOR = 1, MOST_DIMS = 8 };

typedef void *Status; /* NULL when all is well */
typedef void (*Function)(void);
typedef struct {
  const Function *(*functions)(uint32_t version);
  const char *(*version)(void);
} Base;

typedef struct Operator {
  uint32_t version;
  void *(*create)(const struct Operator *, const Function *, const void *info);
  const char *(*name)(const struct Operator *);
  const char *(*provider)(const struct Operator *);
  int (*input_type)(const struct Operator *, size_t);
  size_t (*inputs)(const struct Operator *);
  int (*output_type)(const struct Operator *, size_t);
  size_t (*outputs)(const struct Operator *);
  void (*compute)(void *kernel, void *context);
  void (*destroy)(void *kernel);
  int (*input_kind)(const struct Operator *, size_t);
  int (*output_kind)(const struct Operator *, size_t);
} Operator;

static const Function *api;
static float factors[64];
static int used;

/* Calls function `place` of the table, whose parameters are `types`. */
#define CALL(place, types, ...) ((Status(*) types)api[place])(__VA_ARGS__)

static void *create(const Operator *op, const Function *table, const void *info) {
  float *factor = &factors[used++ % 64];
  (void)op, (void)table;
  if (CALL(FLOAT_ATTRIBUTE, (const void *, const char *, float *), info, "k", factor)) *factor = 1;
  return factor;
}

static void compute(void *kernel, void *context) {
  const void *x = NULL;
  void *y = NULL, *shape = NULL;
  float *from = NULL, *to = NULL, factor = *(float *)kernel;
  size_t rank = 0, count = 0;
  int64_t dims[MOST_DIMS];
  if (CALL(INPUT, (const void *, size_t, const void **), context, 0, &x) ||
      CALL(SHAPE_OF, (const void *, void **), x, &shape) || CALL(RANK, (const void *, size_t *), shape, &rank) ||
      rank > MOST_DIMS || CALL(DIMS, (const void *, int64_t *, size_t), shape, dims, rank) ||
      CALL(ELEMENTS, (const void *, size_t *), shape, &count))
    return;
  ((void (*)(void *))api[RELEASE_SHAPE])(shape);
  if (CALL(OUTPUT, (void *, size_t, const int64_t *, size_t, void **), context, 0, dims, rank, &y) ||
      CALL(TENSOR_DATA, (const void *, void **), x, (void **)&from) ||
      CALL(TENSOR_DATA, (const void *, void **), y, (void **)&to))
    return;
  for (size_t i = 0; i < count; i++) to[i] = 2 * factor * from[i];
}

static const char *name(const Operator *op) { return (void)op, "twice"; }
static const char *provider(const Operator *op) { return (void)op, NULL; }
static int type(const Operator *op, size_t place) { return (void)op, (void)place, FLOAT_TENSOR; }
static size_t one(const Operator *op) { return (void)op, 1; }
static int required(const Operator *op, size_t place) { return (void)op, (void)place, 0; }
static void destroy(void *kernel) { (void)kernel; }

static const Operator twice = {API_VERSION, create, name,    provider, type,     one,
                               type,        one,    compute, destroy,  required, required};

/* What the runtime looks for in a library of custom operators. */
Status RegisterCustomOps(void *options, const Base *base) {
  void *domain = NULL;
  Status failed;
  api = base->functions(API_VERSION);
  if ((failed = CALL(CREATE_DOMAIN, (const char *, void **), "onnxtool_tests", &domain))) return failed;
  if ((failed = CALL(ADD_TO_DOMAIN, (void *, const Operator *), domain, &twice))) return failed;
  return CALL(ADD_DOMAIN, (void *, void *), options, domain);
}
