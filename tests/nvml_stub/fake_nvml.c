/* fake_nvml.c: gcc -shared -fPIC -O1 -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 fake_nvml.c
   State file $FAKE_NVML_STATE, "key value" per line, re-read on EVERY call (live changes).
   "err.<symbol> N" makes that symbol return N (3 NOT_SUPPORTED, 15 GPU_IS_LOST, 18 version mismatch, 999...). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int R; typedef void *D; typedef unsigned U; typedef unsigned long long L;
static int dev[8];
#define IDX(d) ((int)((int *)(d) - dev))
static L get(const char *k, L d) {
  const char *p = getenv("FAKE_NVML_STATE"); if (!p) return d;
  FILE *f = fopen(p, "r"); if (!f) return d;
  char key[96]; long long v; L r = d;
  while (fscanf(f, "%95s %lli", key, &v) == 2) if (!strcmp(key, k)) r = (L)v;
  fclose(f); return r; }
static R err(const char *fn) { char k[96]; snprintf(k, sizeof k, "err.%s", fn);
  L us = get("delay_us", 0); if (us) usleep((useconds_t)us);
  if (get("crash", 0)) abort(); return (R)get(k, 0); }
#define E R e_ = err(__func__); if (e_) return e_
#define STR(s) do { if (n <= strlen(s)) return 7; strcpy(b, s); return 0; } while (0)
R nvmlInitWithFlags(U f) { E; return 0; }
R nvmlInit_v2(void) { E; return 0; }
R nvmlShutdown(void) { E; return 0; }
const char *nvmlErrorString(R r) { return r == 0 ? "Success" : r == 3 ? "Not Supported" : r == 15 ? "GPU is lost" : "fake error"; }
R nvmlSystemGetDriverVersion(char *b, U n) { E; STR("999.10"); }
R nvmlSystemGetNVMLVersion(char *b, U n) { E; STR("13.999.10"); }
R nvmlSystemGetCudaDriverVersion(int *v) { E; *v = (int)get("cuda", 13000); return 0; }
R nvmlSystemGetCudaDriverVersion_v2(int *v) { E; *v = (int)get("cuda", 13000); return 0; }
R nvmlDeviceGetCount_v2(U *n) { E; *n = (U)get("count", 1); return 0; }
R nvmlDeviceGetHandleByIndex_v2(U i, D *d) { E; if (i >= get("count", 1)) return 2; *d = &dev[i & 7]; return 0; }
R nvmlDeviceGetName(D d, char *b, U n) { E; STR("Fake RTX 9000 Laptop GPU"); }
R nvmlDeviceGetUUID(D d, char *b, U n) { E; char s[48]; snprintf(s, sizeof s, "GPU-00000000-0000-0000-0000-%012d", IDX(d)); STR(s); }
typedef struct { char legacy[16]; U domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } Pci;
R nvmlDeviceGetPciInfo_v3(D d, Pci *p) { E; memset(p, 0, sizeof *p); p->bus = 1 + IDX(d);
  snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus); snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus); return 0; }
typedef struct { L total, free, used; } M1;
typedef struct { U v; L total, reserved, free, used; } M2;
static L mib(const char *k, L d) { return get(k, d) << 20; }
R nvmlDeviceGetMemoryInfo(D d, M1 *m) { E; m->total = mib("total_mib", 8192); m->used = mib("used_mib", 1024) + mib("reserved_mib", 300); m->free = m->total - m->used; return 0; }
R nvmlDeviceGetMemoryInfo_v2(D d, M2 *m) { if (m->v != 0x02000028) return 25; E; m->total = mib("total_mib", 8192); m->reserved = mib("reserved_mib", 300); m->used = mib("used_mib", 1024); m->free = m->total - m->used - m->reserved; return 0; }
R nvmlDeviceGetTemperature(D d, U s, U *t) { E; if (s) return 2; *t = (U)get("temp", 60); return 0; }
typedef struct { U v, s; int t; } T1;
R nvmlDeviceGetTemperatureV(D d, T1 *t) { if (t->v != 0x0100000C) return 25; E; t->t = (int)get("temp", 60); return 0; }
R nvmlDeviceGetTemperatureThreshold(D d, U k, U *t) { E; if (k == 0) *t = (U)get("t_shutdown", 97); else if (k == 1) *t = (U)get("t_slowdown", 94); else if (k == 3) *t = (U)get("t_gpumax", 87); else return 3; return 0; }
typedef struct { U v; int margin; } MT;
R nvmlDeviceGetMarginTemperature(D d, MT *m) { E; m->margin = (int)get("t_gpumax", 87) - (int)get("temp", 60); return 0; }
R nvmlDeviceGetCurrentClocksEventReasons(D d, L *r) { E; *r = get("reasons", 0); return 0; }
R nvmlDeviceGetCurrentClocksThrottleReasons(D d, L *r) { E; *r = get("reasons", 0); return 0; }
R nvmlDeviceGetFanSpeed(D d, U *v) { E; L x = get("fan", (L)-1); if (x == (L)-1) return 3; *v = (U)x; return 0; }
R nvmlDeviceGetPowerUsage(D d, U *v) { E; *v = (U)get("power_mw", 80000); return 0; }
R nvmlDeviceGetEnforcedPowerLimit(D d, U *v) { E; *v = (U)get("limit_mw", 115000); return 0; }
typedef struct { U gpu, mem; } Ut;
R nvmlDeviceGetUtilizationRates(D d, Ut *u) { E; u->gpu = (U)get("util", 50); u->mem = (U)get("memutil", 20); return 0; }
R nvmlDeviceGetClockInfo(D d, U t, U *c) { E; *c = (U)get(t == 2 ? "mclk" : "gclk", 1500); return 0; }
R nvmlDeviceGetMaxClockInfo(D d, U t, U *c) { E; *c = 2100; return 0; }
typedef struct { U pid; L used; U gi, ci; } Pr;
static L nth(const char *k, U i, L d) { char one[32]; snprintf(one, sizeof one, "%s.%u", k, i); return get(one, get(k, d)); }
static R procs(const char *c, const char *id, const char *mem, L many, U *n, Pr *p) { U want = (U)get(c, many); if (*n < want) { *n = want; return want ? 7 : 0; } *n = want;
  for (U i = 0; i < want; i++) { p[i].pid = (U)nth(id, i, 4242); p[i].used = get("proc_na", 0) ? ~0ull : nth(mem, i, 512) << 20; p[i].gi = p[i].ci = ~0u; } return 0; }
R nvmlDeviceGetComputeRunningProcesses_v3(D d, U *n, Pr *p) { E; return procs("procs", "pid", "proc_mib", 1, n, p); }
R nvmlDeviceGetGraphicsRunningProcesses_v3(D d, U *n, Pr *p) { E; return procs("gprocs", "gpid", "gproc_mib", 0, n, p); }
R nvmlDeviceGetComputeRunningProcesses_v2(D d, U *n, Pr *p) { E; return procs("procs", "pid", "proc_mib", 1, n, p); }
typedef struct { U id, scope; long long ts, lat; U type; R ret; union { double d; U u; L ull; long long sll; int s; } val; } FV;
R nvmlDeviceGetFieldValues(D d, int n, FV *f) { E; for (int i = 0; i < n; i++) { char k[24]; snprintf(k, sizeof k, "field.%u", f[i].id); L x = get(k, 0x8000000000000000ull);
    f[i].ret = x == 0x8000000000000000ull ? 3 : 0; f[i].type = f[i].id == 269 || f[i].id == 270 ? 3 : 1; if (f[i].ret) continue; if (f[i].type == 3) f[i].val.ull = x; else f[i].val.u = (U)x; } return 0; }
