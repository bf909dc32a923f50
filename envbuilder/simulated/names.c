/* Every name of the driver's interface: those without a body here answer "not supported"; all can be looked up. */
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int

enum { OK = 0, INVALID_VALUE = 1, NOT_FOUND = 500, NOT_SUPPORTED = 801 };

int entered(const char *name);

#define HAS(name) API name(void);
#include "has.inc"
#undef HAS

#define LACKS(name)                                    \
  API name(void) {                                     \
    int forced = entered(#name);                       \
    return forced ? forced : NOT_SUPPORTED;            \
  }
#include "lacks.inc"
#undef LACKS

API cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags);
API cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status);
API cuGetExportTable(const void **table, const unsigned char *id);

static const struct {
  const char *name;
  void *function;
} names[] = {
#define HAS(name) {#name, (void *)name},
#define LACKS(name) {#name, (void *)name},
#include "has.inc"
#include "lacks.inc"
    {"cuGetProcAddress", (void *)cuGetProcAddress},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2},
    {"cuGetExportTable", (void *)cuGetExportTable},
};

static void *exact(const char *symbol, const char *suffix) {
  char name[160];
  snprintf(name, sizeof name, "%s%s", symbol, suffix);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i].name, name)) return names[i].function;
  return NULL;
}

/* A symbol is asked for by its plain name; the newest variant that is held is meant, as the driver documents. */
static void *newest(const char *symbol) {
  const char *suffix = strrchr(symbol, '_');
  if (suffix && suffix[1] == 'v' && suffix[2] >= '0' && suffix[2] <= '9') return NULL;
  void *function = exact(symbol, "_v2");
  return function ? function : exact(symbol, "");
}

API cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
  (void)flags;
  int forced = entered("cuGetProcAddress");
  if (forced) return forced;
  if (!strcmp(symbol, "cuGetProcAddress") && version < 12000)
    *function = (void *)cuGetProcAddress;
  else
    *function = newest(symbol);
  if (!*function) entered(symbol); /* for the trace: a name that nothing is known of */
  return *function ? OK : NOT_FOUND;
}

API cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
  int result = cuGetProcAddress(symbol, function, version, flags);
  if (status) *status = result == OK ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
  return result == NOT_FOUND ? OK : result;
}

/* Private tables of the driver, which are documented nowhere: none is held. */
API cuGetExportTable(const void **table, const unsigned char *id) {
  (void)id;
  int forced = entered("cuGetExportTable");
  *table = NULL;
  return forced ? forced : NOT_FOUND;
}
