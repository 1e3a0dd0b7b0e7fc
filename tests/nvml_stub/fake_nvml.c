/* fake_nvml.c: gcc -shared -fPIC -O1 -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 fake_nvml.c
   State file $FAKE_NVML_STATE, "key value" per line, read again on EVERY call (live changes). All keys: README.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

typedef int R; typedef void *D; typedef unsigned U; typedef unsigned long long L;
enum { DEVICES = 8, ROWS = 1024, SIZE = 1 << 16 };
static int dev[DEVICES];
#define IDX(d) ((int)((int *)(d) - dev))
#define NONE (-1)   /* no device: init, count, driver version */
#define ABSENT (0x8000000000000000ull)

/* --- the state: parsed again only when the text has changed --- */
static char raw[SIZE], parsed[SIZE];
static struct { char *key, *text; } row[ROWS];
static int rows;

static void refresh(void) {
  static char now[SIZE]; const char *path = getenv("FAKE_NVML_STATE"); ssize_t n = 0;
  int f = path ? open(path, O_RDONLY) : -1;
  if (f >= 0) { n = read(f, now, SIZE - 1); close(f); }
  now[n > 0 ? n : 0] = 0;
  if (rows && !strcmp(now, raw)) return;
  strcpy(raw, now); strcpy(parsed, now); rows = 0;
  for (char *line = strtok(parsed, "\n"); line && rows < ROWS; line = strtok(NULL, "\n")) {
    char *gap = strchr(line, ' '); if (!gap) break;
    *gap = 0; row[rows].key = line; row[rows++].text = gap + 1; } }

static const char *text(const char *key) {
  for (int i = rows - 1; i >= 0; i--) if (!strcmp(row[i].key, key)) return row[i].text;
  return NULL; }

static double unix_now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec + t.tv_nsec / 1e9; }

/* "START 0:60 5:90 10:70 [loop]": seconds after START and values; between two points a line, or a stair */
static L curve(const char *points, int stairs) {
  char *p; double now = unix_now(), at = now - strtod(points, &p), last = 0;
  for (const char *q = p; (q = strchr(q, ':')); q++) { const char *b = q; while (b > p && b[-1] != ' ') b--; last = strtod(b, NULL); }
  if (strstr(p, "loop") && last > 0 && at > 0) at = fmod(at, last);
  double t0 = 0; long long v0 = 0; int first = 1;
  for (;;) {
    char *e; double t = strtod(p, &e); if (e == p || *e != ':') break;
    long long v = strtoll(e + 1, &p, 0);
    if (first || t <= at) { t0 = t; v0 = v; first = 0; if (t > at) break; continue; }
    return (L)(stairs ? v0 : v0 + llround((v - v0) * (at - t0) / (t - t0))); }
  return (L)v0; }

static const char *form(const char *prefix, const char *key, int d) {
  char k[160]; if (d < 0) snprintf(k, sizeof k, "%s%s", prefix, key); else snprintf(k, sizeof k, "%s%s.%d", prefix, key, d);
  return text(k); }

/* the value of a key: of this device before that of all; a curve before a number; "absent" has none */
static L get(const char *key, int d, L otherwise) {
  for (int which = d; ; which = NONE) {
    const char *s;
    if ((s = form("step.", key, which))) return curve(s, 1);
    if ((s = form("curve.", key, which))) return curve(s, 0);
    if ((s = form("", key, which))) return strncmp(s, "absent", 6) ? (L)strtoll(s, NULL, 0) : ABSENT;
    if (which == NONE) return otherwise; } }

/* --- what each call does before it answers --- */
static void note(const char *fn, int d) {
  static int f = -2; if (f == -2) { const char *p = getenv("FAKE_NVML_LOG"); f = p ? open(p, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1; }
  if (f < 0) return;
  char line[128]; int n = d < 0 ? snprintf(line, sizeof line, "%s\n", fn) : snprintf(line, sizeof line, "%s %d\n", fn, d);
  if (write(f, line, n) < 0) return; }

/* counters that grow while their bit is set, in this process, once "counters 1" stands in the state */
static const struct { U field; L bits; } counter[] = { {269, 0x20}, {270, 0x40}, {271, 0x80}, {74, 0x4}, {75, 0x60}, {76, 0x10} };
enum { COUNTERS = 6 };
static L grown[DEVICES][COUNTERS];
static void grow(int d) {
  static double last[DEVICES]; static L bits[DEVICES];
  if (!get("counters", d, 0)) return;
  double now = unix_now();
  for (int i = 0; last[d] && i < COUNTERS; i++) if (bits[d] & counter[i].bits) grown[d][i] += (L)((now - last[d]) * 1e9);
  last[d] = now; bits[d] = get("reasons", d, 0); }

static L of_symbol(const char *what, const char *fn, int d) { char k[128]; snprintf(k, sizeof k, "%s.%s", what, fn); return get(k, d, 0); }

static R before(const char *fn, int d) {
  refresh(); note(fn, d);
  L us = get("delay_us", d, 0) + of_symbol("delay", fn, d);
  if (us) { usleep((useconds_t)us); refresh(); }
  if (get("crash", d, 0) || of_symbol("crash", fn, d)) abort();
  if (get("hang", d, 0) || of_symbol("hang", fn, d)) for (;;) pause();
  if (d >= 0) grow(d);
  R one = (R)of_symbol("err", fn, d), all = (R)get("err_all", d, 0);
  return one ? one : all; }

#define E R e_ = before(__func__, NONE); if (e_) return e_
#define ED(d) R e_ = before(__func__, IDX(d)); if (e_) return e_
#define STR(s) do { if (n <= strlen(s)) return 7; strcpy(b, s); return 0; } while (0)
#define VALUE(type, out, key, d, otherwise) do { L x_ = get(key, d, otherwise); if (x_ == ABSENT) return 3; *(out) = (type)x_; return 0; } while (0)

static const char *words(const char *key, int d, const char *otherwise) {
  const char *s = form("", key, d); if (!s) s = text(key);
  return s ? s : otherwise; }

/* --- the driver --- */
R nvmlInitWithFlags(U f) { E; return 0; }
R nvmlInit_v2(void) { E; return 0; }
R nvmlShutdown(void) { E; return 0; }
const char *nvmlErrorString(R r) { return r == 0 ? "Success" : r == 3 ? "Not Supported" : r == 15 ? "GPU is lost" : "fake error"; }
R nvmlSystemGetDriverVersion(char *b, U n) { E; STR(words("driver", NONE, "999.10")); }
R nvmlSystemGetNVMLVersion(char *b, U n) { E; STR("13.999.10"); }
R nvmlSystemGetCudaDriverVersion(int *v) { E; *v = (int)get("cuda", NONE, 13000); return 0; }
R nvmlSystemGetCudaDriverVersion_v2(int *v) { E; *v = (int)get("cuda", NONE, 13000); return 0; }

/* --- which devices there are --- */
static void uuid(int d, char *b, size_t n) { snprintf(b, n, "GPU-00000000-0000-0000-0000-%012d", d); }
static R device(U i, D *d) { if (i >= get("count", NONE, 1) || i >= DEVICES) return 2; *d = &dev[i]; return 0; }
R nvmlDeviceGetCount_v2(U *n) { E; *n = (U)get("count", NONE, 1); return 0; }
R nvmlDeviceGetHandleByIndex_v2(U i, D *d) { R e = before(__func__, (int)(i & 7)); return e ? e : device(i, d); }
R nvmlDeviceGetHandleByPciBusId_v2(const char *b, D *d) {
  U domain = 0, bus = 0; if (sscanf(b, "%x:%x:", &domain, &bus) != 2 || !bus) return 2;
  R e = before(__func__, (int)((bus - 1) & 7)); if (e) return e;
  return device(bus - 1, d) ? 6 : 0; }
R nvmlDeviceGetHandleByUUID(const char *b, D *d) {
  char s[48]; refresh();
  for (int i = 0; i < DEVICES; i++) { uuid(i, s, sizeof s); if (!strcmp(s, b)) { R e = before(__func__, i); return e ? e : device((U)i, d) ? 6 : 0; } }
  return 6; }
R nvmlDeviceGetIndex(D d, U *i) { ED(d); *i = (U)IDX(d); return 0; }
R nvmlDeviceGetName(D d, char *b, U n) { ED(d); STR(words("name", IDX(d), "Fake RTX 9000 Laptop GPU")); }
R nvmlDeviceGetUUID(D d, char *b, U n) { ED(d); char s[48]; uuid(IDX(d), s, sizeof s); STR(s); }
typedef struct { char legacy[16]; U domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } Pci;
R nvmlDeviceGetPciInfo_v3(D d, Pci *p) { ED(d); memset(p, 0, sizeof *p); p->bus = 1 + IDX(d);
  snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus); snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus); return 0; }

/* --- memory --- */
typedef struct { L total, free, used; } M1;
typedef struct { U v; L total, reserved, free, used; } M2;
static L mib(const char *k, int d, L otherwise) { return get(k, d, otherwise) << 20; }
R nvmlDeviceGetMemoryInfo(D d, M1 *m) { ED(d); int i = IDX(d); if (get("total_mib", i, 0) == ABSENT) return 3;
  m->total = mib("total_mib", i, 8192); m->used = mib("used_mib", i, 1024) + mib("reserved_mib", i, 300); m->free = m->total - m->used; return 0; }
R nvmlDeviceGetMemoryInfo_v2(D d, M2 *m) { if (m->v != 0x02000028) return 25; ED(d); int i = IDX(d); if (get("total_mib", i, 0) == ABSENT) return 3;
  m->total = mib("total_mib", i, 8192); m->reserved = mib("reserved_mib", i, 300); m->used = mib("used_mib", i, 1024); m->free = m->total - m->used - m->reserved; return 0; }

/* --- heat --- */
R nvmlDeviceGetTemperature(D d, U s, U *t) { ED(d); if (s) return 2; VALUE(U, t, "temp", IDX(d), 60); }
typedef struct { U v, s; int t; } T1;
R nvmlDeviceGetTemperatureV(D d, T1 *t) { if (t->v != 0x0100000C) return 25; ED(d); VALUE(int, &t->t, "temp", IDX(d), 60); }
R nvmlDeviceGetTemperatureThreshold(D d, U k, U *t) { ED(d); int i = IDX(d);
  if (k == 0) VALUE(U, t, "t_shutdown", i, 97); if (k == 1) VALUE(U, t, "t_slowdown", i, 94); if (k == 3) VALUE(U, t, "t_gpumax", i, 87);
  return 3; }
typedef struct { U v; int margin; } MT;
R nvmlDeviceGetMarginTemperature(D d, MT *m) { ED(d); int i = IDX(d); L at = get("t_gpumax", i, 87), now = get("temp", i, 60);
  VALUE(int, &m->margin, "margin", i, at == ABSENT || now == ABSENT ? ABSENT : at - now); }
R nvmlDeviceGetCurrentClocksEventReasons(D d, L *r) { ED(d); VALUE(L, r, "reasons", IDX(d), 0); }
R nvmlDeviceGetCurrentClocksThrottleReasons(D d, L *r) { ED(d); VALUE(L, r, "reasons", IDX(d), 0); }
R nvmlDeviceGetFanSpeed(D d, U *v) { ED(d); VALUE(U, v, "fan", IDX(d), ABSENT); }
typedef struct { U v, fan, rpm; } Fan;
R nvmlDeviceGetFanSpeedRPM(D d, Fan *f) { if (f->v != 0x0100000C) return 25; ED(d); VALUE(U, &f->rpm, "fan_rpm", IDX(d), ABSENT); }

/* --- power and work --- */
R nvmlDeviceGetPowerUsage(D d, U *v) { ED(d); VALUE(U, v, "power_mw", IDX(d), 80000); }
R nvmlDeviceGetEnforcedPowerLimit(D d, U *v) { ED(d); VALUE(U, v, "limit_mw", IDX(d), 115000); }
R nvmlDeviceGetPowerManagementLimit(D d, U *v) { ED(d); VALUE(U, v, "management_limit_mw", IDX(d), ABSENT); }
R nvmlDeviceGetTotalEnergyConsumption(D d, L *v) { ED(d); VALUE(L, v, "energy_mj", IDX(d), ABSENT); }
typedef struct { U gpu, mem; } Ut;
R nvmlDeviceGetUtilizationRates(D d, Ut *u) { ED(d); L g = get("util", IDX(d), 50), m = get("memutil", IDX(d), 20);
  if (g == ABSENT) return 3; u->gpu = (U)g; u->mem = m == ABSENT ? 0 : (U)m; return 0; }
R nvmlDeviceGetClockInfo(D d, U t, U *c) { ED(d); VALUE(U, c, t == 2 ? "mclk" : "gclk", IDX(d), 1500); }
R nvmlDeviceGetMaxClockInfo(D d, U t, U *c) { ED(d); VALUE(U, c, t == 2 ? "mclk_max" : "gclk_max", IDX(d), 2100); }

/* --- processes: "pid.1" is the second process --- */
typedef struct { U pid; L used; U gi, ci; } Pr;
static R procs(int d, const char *c, const char *id, const char *mem, L many, U *n, Pr *p) {
  U want = (U)get(c, d, many); if (*n < want) { *n = want; return want ? 7 : 0; } *n = want;
  for (U i = 0; i < want; i++) { p[i].pid = (U)get(id, (int)i, 4242); p[i].used = get("proc_na", d, 0) ? ~0ull : get(mem, (int)i, 512) << 20; p[i].gi = p[i].ci = ~0u; }
  return 0; }
R nvmlDeviceGetComputeRunningProcesses_v3(D d, U *n, Pr *p) { ED(d); return procs(IDX(d), "procs", "pid", "proc_mib", 1, n, p); }
R nvmlDeviceGetGraphicsRunningProcesses_v3(D d, U *n, Pr *p) { ED(d); return procs(IDX(d), "gprocs", "gpid", "gproc_mib", 0, n, p); }
R nvmlDeviceGetComputeRunningProcesses_v2(D d, U *n, Pr *p) { ED(d); return procs(IDX(d), "procs", "pid", "proc_mib", 1, n, p); }

/* --- field values: each entry with its own code and type --- */
typedef struct { U id, scope; long long ts, lat; U type; R ret; union { double d; U u; L ull; long long sll; int s; } val; } FV;
R nvmlDeviceGetFieldValues(D d, int n, FV *f) { ED(d); int i = IDX(d);
  for (FV *v = f; v < f + n; v++) {
    char k[32]; int wide = 0; snprintf(k, sizeof k, "field.%u", v->id); L x = get(k, i, ABSENT);
    for (int c = 0; c < COUNTERS; c++) if (counter[c].field == v->id) { wide = 1; if (get("counters", i, 0)) x = (x == ABSENT ? 0 : x) + grown[i][c]; }
    snprintf(k, sizeof k, "ferr.%u", v->id);
    v->ret = (R)get(k, i, x == ABSENT ? 3 : 0); snprintf(k, sizeof k, "ftype.%u", v->id); v->type = (U)get(k, i, wide ? 3 : 1);
    if (v->ret) continue;
    memset(&v->val, 0, sizeof v->val); if (v->type == 3) v->val.ull = x; else if (v->type == 0) v->val.d = (double)(long long)x; else v->val.u = (U)x; }
  return 0; }
