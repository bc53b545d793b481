#define _GNU_SOURCE
#include "capi.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef void *handle;

// struct nixl_capi_agent_config_s, the same since 0.7.0 (nixl.md, 8).
typedef struct {
	bool enable_prog_thread;
	bool enable_listen_thread;
	int listen_port;
	uint32_t thread_sync;
	uint32_t num_workers;
	uint64_t pthr_delay_us;
	uint64_t lthr_delay_us;
	bool capture_telemetry;
} agent_config;

_Static_assert(sizeof(agent_config) == 40, "layout of nixl_capi_agent_config_s");
_Static_assert(sizeof(kvn_range) == 24 && offsetof(kvn_range, kind) == 16 && offsetof(kvn_range, device) == 20, "layout of ports.Descriptor");

enum { THREAD_SYNC_STRICT = 1 };

#define FUNCTIONS(F) \
	F(create_configured_agent, (const char *name, const agent_config *config, handle *agent)) \
	F(destroy_agent, (handle agent)) \
	F(get_plugin_params, (handle agent, const char *plugin, handle *mems, handle *params)) \
	F(destroy_mem_list, (handle mems)) \
	F(destroy_params, (handle params)) \
	F(create_backend, (handle agent, const char *plugin, handle params, handle *backend)) \
	F(destroy_backend, (handle backend)) \
	F(create_opt_args, (handle *args)) \
	F(destroy_opt_args, (handle args)) \
	F(opt_args_add_backend, (handle args, handle backend)) \
	F(create_reg_dlist, (uint32_t kind, handle *list)) \
	F(destroy_reg_dlist, (handle list)) \
	F(reg_dlist_add_desc, (handle list, uintptr_t addr, size_t bytes, uint64_t device, const void *extra, size_t extra_bytes)) \
	F(register_mem, (handle agent, handle list, handle args)) \
	F(deregister_mem, (handle agent, handle list, handle args)) \
	F(get_local_md, (handle agent, void **data, size_t *bytes)) \
	F(get_local_partial_md, (handle agent, handle list, void **data, size_t *bytes, handle args)) \
	F(load_remote_md, (handle agent, const void *data, size_t bytes, char **name)) \
	F(invalidate_remote_md, (handle agent, const char *name)) \
	F(create_xfer_dlist, (uint32_t kind, handle *list)) \
	F(destroy_xfer_dlist, (handle list)) \
	F(xfer_dlist_clear, (handle list)) \
	F(xfer_dlist_add_desc, (handle list, uintptr_t addr, size_t bytes, uint64_t device)) \
	F(create_xfer_req, (handle agent, uint32_t operation, handle local, handle remote, const char *peer, kvn_request **request, handle args)) \
	F(post_xfer_req, (handle agent, kvn_request *request, handle args)) \
	F(get_xfer_status, (handle agent, kvn_request *request)) \
	F(release_xfer_req, (handle agent, kvn_request *request)) \
	F(destroy_xfer_req, (kvn_request *request)) \
	F(gen_notif, (handle agent, const char *peer, const void *data, size_t bytes, handle args)) \
	F(get_notifs, (handle agent, handle map, handle args)) \
	F(create_notif_map, (handle *map)) \
	F(destroy_notif_map, (handle map)) \
	F(notif_map_size, (handle map, size_t *n)) \
	F(notif_map_get_agent_at, (handle map, size_t index, const char **name)) \
	F(notif_map_get_notifs_size, (handle map, const char *name, size_t *n)) \
	F(notif_map_get_notif, (handle map, const char *name, size_t index, const void **data, size_t *bytes)) \
	F(notif_map_clear, (handle map))

#define DECLARE(name, arguments) int(*name) arguments;
static struct {
	FUNCTIONS(DECLARE)
} nixl;

static char *text(const char *format, const char *what)
{
	char *out = NULL;
	if (asprintf(&out, format, what) < 0) {
		return strdup("out of memory");
	}
	return out;
}

char *kvn_load(const char *path, int *since_1_5)
{
	// RTLD_LOCAL: NIXL and UCX bring their own copies of common libraries, which must not serve the rest of the process.
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		return text("%s", dlerror());
	}
#define RESOLVE(name, arguments) \
	*(void **)&nixl.name = dlsym(library, "nixl_capi_" #name); \
	if (nixl.name == NULL) { \
		return text("it has no function %s: it is older than NIXL 1.0, or not NIXL's C library", "nixl_capi_" #name); \
	}
	FUNCTIONS(RESOLVE)

	// There is no version call (nixl.md, 8): a function that 1.5 added tells.
	*since_1_5 = dlsym(library, "nixl_capi_opt_args_set_custom_param") != NULL;
	// The library stays loaded: its threads and handlers outlive every agent.
	return NULL;
}

enum { KINDS = 2 };

struct kvn_agent {
	handle agent;
	handle backend;
	handle args; // names the backend
	handle map;
	handle local[KINDS], remote[KINDS]; // lists that every kvn_create fills anew, so that their memory is kept
	uint8_t *received;
	size_t received_bytes, received_capacity;
};

#define STEP(call) \
	do { \
		*step = #call; \
		if ((rc = call) != KVN_SUCCESS) { \
			return rc; \
		} \
	} while (0)

static int open_steps(kvn_agent *a, const char *name, const char **step)
{
	int rc;
	// No progress thread and no listener: the adapter drives the agent itself (nixl.md, rule 6). lthr_delay_us is the constructor's default.
	const agent_config config = {.thread_sync = THREAD_SYNC_STRICT, .num_workers = 1, .lthr_delay_us = 100000};
	*step = "create_configured_agent";
	if ((rc = nixl.create_configured_agent(name, &config, &a->agent)) != KVN_SUCCESS) {
		return rc;
	}
	handle mems = NULL, params = NULL;
	*step = "get_plugin_params(UCX)";
	if ((rc = nixl.get_plugin_params(a->agent, "UCX", &mems, &params)) != KVN_SUCCESS) {
		return rc;
	}
	*step = "create_backend(UCX)";
	rc = nixl.create_backend(a->agent, "UCX", params, &a->backend);
	nixl.destroy_params(params);
	nixl.destroy_mem_list(mems);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	STEP(nixl.create_opt_args(&a->args));
	STEP(nixl.opt_args_add_backend(a->args, a->backend));
	STEP(nixl.create_notif_map(&a->map));
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		STEP(nixl.create_xfer_dlist(kind, &a->local[kind]));
		STEP(nixl.create_xfer_dlist(kind, &a->remote[kind]));
	}
	return KVN_SUCCESS;
}

int kvn_open(const char *name, kvn_agent **agent, const char **step)
{
	kvn_agent *a = calloc(1, sizeof *a);
	if (a == NULL) {
		*step = "calloc";
		return KVN_NO_MEMORY;
	}
	int rc = open_steps(a, name, step);
	if (rc != KVN_SUCCESS) {
		kvn_close(a);
		return rc;
	}
	*agent = a;
	return KVN_SUCCESS;
}

int kvn_close(kvn_agent *a)
{
	int rc = KVN_SUCCESS;
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		if (a->local[kind] != NULL) {
			nixl.destroy_xfer_dlist(a->local[kind]);
		}
		if (a->remote[kind] != NULL) {
			nixl.destroy_xfer_dlist(a->remote[kind]);
		}
	}
	if (a->map != NULL) {
		nixl.destroy_notif_map(a->map);
	}
	if (a->args != NULL) {
		nixl.destroy_opt_args(a->args);
	}
	if (a->agent != NULL) {
		rc = nixl.destroy_agent(a->agent);
	}
	// The backend's wrapper only: the backend itself ended with the agent (nixl.md, 3).
	if (a->backend != NULL) {
		nixl.destroy_backend(a->backend);
	}
	free(a->received);
	free(a);
	return rc;
}

static int reg_list(const kvn_range *ranges, size_t n, handle *list)
{
	int rc = nixl.create_reg_dlist(n > 0 ? ranges[0].kind : 0, list);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	for (size_t i = 0; i < n; i++) {
		rc = nixl.reg_dlist_add_desc(*list, (uintptr_t)ranges[i].addr, ranges[i].bytes, ranges[i].device, "", 0);
		if (rc != KVN_SUCCESS) {
			nixl.destroy_reg_dlist(*list);
			return rc;
		}
	}
	return KVN_SUCCESS;
}

int kvn_register(kvn_agent *a, const kvn_range *ranges, size_t n)
{
	handle list;
	int rc = reg_list(ranges, n, &list);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	rc = nixl.register_mem(a->agent, list, a->args);
	nixl.destroy_reg_dlist(list);
	return rc;
}

int kvn_deregister(kvn_agent *a, const kvn_range *ranges, size_t n)
{
	handle list;
	int rc = reg_list(ranges, n, &list);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	rc = nixl.deregister_mem(a->agent, list, a->args);
	nixl.destroy_reg_dlist(list);
	return rc;
}

int kvn_metadata(kvn_agent *a, int connection_only, void **data, size_t *bytes)
{
	if (!connection_only) {
		return nixl.get_local_md(a->agent, data, bytes);
	}
	handle none;
	int rc = reg_list(NULL, 0, &none);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	rc = nixl.get_local_partial_md(a->agent, none, data, bytes, NULL);
	nixl.destroy_reg_dlist(none);
	return rc;
}

int kvn_connect(kvn_agent *a, const void *data, size_t bytes, char **name)
{
	return nixl.load_remote_md(a->agent, data, bytes, name);
}

int kvn_forget(kvn_agent *a, const char *peer)
{
	return nixl.invalidate_remote_md(a->agent, peer);
}

static int fill(handle list, const kvn_range *ranges, size_t n)
{
	int rc = nixl.xfer_dlist_clear(list);
	for (size_t i = 0; i < n && rc == KVN_SUCCESS; i++) {
		rc = nixl.xfer_dlist_add_desc(list, (uintptr_t)ranges[i].addr, ranges[i].bytes, ranges[i].device);
	}
	return rc;
}

int kvn_create(kvn_agent *a, int operation, const char *peer, const kvn_range *local, const kvn_range *remote, size_t n, kvn_request **request)
{
	if (n == 0 || local[0].kind >= KINDS || remote[0].kind >= KINDS) {
		return KVN_INVALID_PARAM;
	}
	handle from = a->local[local[0].kind], to = a->remote[remote[0].kind];
	int rc = fill(from, local, n);
	if (rc == KVN_SUCCESS) {
		rc = fill(to, remote, n);
	}
	if (rc == KVN_SUCCESS) {
		rc = nixl.create_xfer_req(a->agent, operation, from, to, peer, request, a->args);
	}
	return rc;
}

int kvn_post(kvn_agent *a, kvn_request *request)
{
	return nixl.post_xfer_req(a->agent, request, NULL);
}

int kvn_status(kvn_agent *a, kvn_request *request)
{
	return nixl.get_xfer_status(a->agent, request);
}

int kvn_release(kvn_agent *a, kvn_request *request)
{
	int rc = nixl.release_xfer_req(a->agent, request);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	return nixl.destroy_xfer_req(request);
}

int kvn_notify(kvn_agent *a, const char *peer, const void *message, size_t bytes)
{
	return nixl.gen_notif(a->agent, peer, bytes > 0 ? message : "", bytes, NULL);
}

// room makes space for n more bytes.
static bool room(kvn_agent *a, size_t n)
{
	size_t need = a->received_bytes + n;
	if (need <= a->received_capacity) {
		return true;
	}
	size_t capacity = a->received_capacity > 0 ? a->received_capacity : 64 * 1024;
	while (capacity < need) {
		capacity *= 2;
	}
	uint8_t *grown = realloc(a->received, capacity);
	if (grown == NULL) {
		return false;
	}
	a->received = grown;
	a->received_capacity = capacity;
	return true;
}

static void append(kvn_agent *a, const void *data, size_t n)
{
	memcpy(a->received + a->received_bytes, data, n);
	a->received_bytes += n;
}

static void append_u32(kvn_agent *a, uint32_t v)
{
	append(a, &v, sizeof v);
}

// take_sender copies one sender's messages. A sender whose name holds a NUL cannot be looked up; its messages are dropped.
static void take_sender(kvn_agent *a, size_t index)
{
	const char *name;
	size_t n = 0;
	if (nixl.notif_map_get_agent_at(a->map, index, &name) != KVN_SUCCESS ||
		nixl.notif_map_get_notifs_size(a->map, name, &n) != KVN_SUCCESS || n > UINT32_MAX) {
		return;
	}
	size_t name_bytes = strlen(name);
	size_t begin = a->received_bytes;
	if (name_bytes > UINT32_MAX || !room(a, 8 + name_bytes)) {
		return;
	}
	append_u32(a, (uint32_t)name_bytes);
	append_u32(a, 0);
	append(a, name, name_bytes);
	uint32_t taken = 0;
	for (size_t i = 0; i < n; i++) {
		const void *data;
		size_t bytes;
		if (nixl.notif_map_get_notif(a->map, name, i, &data, &bytes) != KVN_SUCCESS || bytes > UINT32_MAX || !room(a, 4 + bytes)) {
			continue;
		}
		append_u32(a, (uint32_t)bytes);
		append(a, data, bytes);
		taken++;
	}
	memcpy(a->received + begin + 4, &taken, sizeof taken);
}

int kvn_receive(kvn_agent *a, const uint8_t **data, size_t *bytes)
{
	a->received_bytes = 0;
	*data = NULL;
	*bytes = 0;
	int rc = nixl.get_notifs(a->agent, a->map, NULL);
	if (rc != KVN_SUCCESS) {
		return rc;
	}
	size_t senders = 0;
	rc = nixl.notif_map_size(a->map, &senders);
	if (rc != KVN_SUCCESS || senders == 0) {
		return rc;
	}
	for (size_t i = 0; i < senders; i++) {
		take_sender(a, i);
	}
	*data = a->received;
	*bytes = a->received_bytes;
	return nixl.notif_map_clear(a->map);
}

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void kvn_bell_ring(kvn_bell *bell)
{
	__atomic_store_n(&bell->rung, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&bell->asleep, __ATOMIC_SEQ_CST) != 0) {
		futex(&bell->rung, FUTEX_WAKE, 1, NULL);
	}
}

// answer_bell waits and reports whether the bell was rung. Spurious wake-ups are harmless: the thread looks for work and waits again.
static bool answer_bell(kvn_bell *bell, int64_t ns)
{
	struct timespec timeout = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	__atomic_store_n(&bell->asleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&bell->rung, __ATOMIC_SEQ_CST) == 0) {
		futex(&bell->rung, FUTEX_WAIT, 0, ns < 0 ? NULL : &timeout);
	}
	__atomic_store_n(&bell->asleep, 0, __ATOMIC_SEQ_CST);
	return __atomic_exchange_n(&bell->rung, 0, __ATOMIC_SEQ_CST) != 0;
}

void kvn_bell_wait(kvn_bell *bell, int64_t ns)
{
	answer_bell(bell, ns);
}

int kvn_rest(kvn_agent *a, kvn_bell *bell, int64_t every, int turns, const uint8_t **data, size_t *bytes)
{
	*data = NULL;
	*bytes = 0;
	while (turns-- > 0 && !answer_bell(bell, every)) {
		int rc = kvn_receive(a, data, bytes);
		if (rc != KVN_SUCCESS || *bytes > 0) {
			return rc;
		}
	}
	return KVN_SUCCESS;
}

void kvn_precise_sleep(void)
{
	prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}
