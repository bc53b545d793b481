// The part of NIXL's C API that the adapter uses, behind a table that is filled at run time, so that nothing of NIXL is needed to build.
//
// The declarations are our own; names, types and codes are those of the C API's wrapper.h (src/bindings/rust/wrapper.h of ai-dynamo/nixl). No
// signature has changed since 1.0.0 (nixl.md, 8). Every function answers one of NIXL's codes unless it says otherwise.
#ifndef KVBOUNCE_NIXL_CAPI_H
#define KVBOUNCE_NIXL_CAPI_H

#include <stddef.h>
#include <stdint.h>

// Codes of the C API (nixl.md, head).
enum {
	KVN_SUCCESS = 0,
	KVN_IN_PROGRESS = 1,
	KVN_INVALID_PARAM = -1,
	KVN_BACKEND = -2,
	KVN_INVALID_STATE = -3,
	KVN_EXCEPTION = -4,
	KVN_NO_TELEMETRY = -5,
	KVN_NOT_FOUND = -6,
	KVN_NO_MEMORY = -100, // ours: this file could not allocate
};

enum { KVN_READ = 0, KVN_WRITE = 1 };

// kvn_range has the layout of ports.Descriptor, so that Go's slices are read in place.
typedef struct {
	uint64_t addr;
	uint64_t bytes;
	uint8_t kind; // ports.MemoryKind: 0 host, 1 device; NIXL's DRAM and VRAM
	uint32_t device;
} kvn_range;

typedef struct kvn_agent kvn_agent;
typedef struct nixl_capi_xfer_req_s kvn_request;

// kvn_load opens the library and fills the table. On failure it answers a text to be freed with free(), else NULL, and sets since_1_5 to whether the library is of NIXL 1.5 or newer.
char *kvn_load(const char *path, int *since_1_5);

// kvn_open makes an agent with a UCX backend. On failure *step names the call that failed (a constant string) and nothing is left behind.
int kvn_open(const char *name, kvn_agent **agent, const char **step);
// kvn_close destroys the agent and all that belongs to it. Requests that were not released before must not be touched afterwards.
int kvn_close(kvn_agent *agent);

// All ranges of one call have the same kind.
int kvn_register(kvn_agent *agent, const kvn_range *ranges, size_t n);
int kvn_deregister(kvn_agent *agent, const kvn_range *ranges, size_t n);

// Metadata of everything, or, with connection_only, of the connection without any region. *data is freed with free().
int kvn_metadata(kvn_agent *agent, int connection_only, void **data, size_t *bytes);
// kvn_connect loads metadata; *name is the agent that it names, to be freed with free().
int kvn_connect(kvn_agent *agent, const void *data, size_t bytes, char **name);
int kvn_forget(kvn_agent *agent, const char *peer);

// kvn_create makes a request of n pairs, local[i] with remote[i]. All local ranges have one kind, and all remote ranges have one kind.
int kvn_create(kvn_agent *agent, int operation, const char *peer, const kvn_range *local, const kvn_range *remote, size_t n, kvn_request **request);
int kvn_post(kvn_agent *agent, kvn_request *request);
int kvn_status(kvn_agent *agent, kvn_request *request);
// kvn_release frees the request: NIXL's handle, then the wrapper (nixl.md, 3).
int kvn_release(kvn_agent *agent, kvn_request *request);

int kvn_notify(kvn_agent *agent, const char *peer, const void *message, size_t bytes);
// kvn_receive drives the agent once and takes what arrived. *data holds, for each sender that has messages: u32 length of the name, u32 number of messages,
// the name, then each message as u32 length and bytes (native order, unaligned). It stays valid until the next call. A message of 4 GiB or more is lost.
int kvn_receive(kvn_agent *agent, const uint8_t **data, size_t *bytes);

// A bell wakes one thread that waits for it. It is a futex, because the wait is often shorter than the Go scheduler's wake-up of a locked thread.
typedef struct {
	uint32_t rung;
	uint32_t asleep;
} kvn_bell;

// kvn_bell_ring makes the present or the next wait return. Any thread.
void kvn_bell_ring(kvn_bell *bell);
// kvn_bell_wait waits until the bell was rung since the last wait, at most ns nanoseconds; below 0 without limit.
void kvn_bell_wait(kvn_bell *bell, int64_t ns);
// kvn_rest drives the agent every so many nanoseconds, so many times, or until something arrived, which it answers as kvn_receive does, or the bell was rung since the last wait.
int kvn_rest(kvn_agent *agent, kvn_bell *bell, int64_t every, int turns, const uint8_t **data, size_t *bytes);
// kvn_precise_sleep lets the calling thread's timed waits end on time; by default Linux adds 50 microseconds.
void kvn_precise_sleep(void);

#endif
