// A library with the functions of NIXL's C API that the adapter uses, whose answers are written in the peer's name, and which ends the process with a line on standard error
// when it is used as the real one must not be: nixl.md, 3.
//
// A peer's name is a list of words: "create C" is what create_xfer_req answers, "post C" what post_xfer_req answers, "status C C ..." what get_xfer_status
// answers one after the other, the last one for ever, "notify C" what gen_notif answers, "load C" what load_remote_md answers; 0 unless it says otherwise. load_remote_md takes the whole blob as the name.
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define OK(name, arguments) EXPORT int nixl_capi_##name arguments { return 0; }
#define MAKE(name, arguments, out) EXPORT int nixl_capi_##name arguments { *out = malloc(1); return 0; }
#define FREE(name, arguments, in) EXPORT int nixl_capi_##name arguments { free(in); return 0; }

typedef void *handle;

struct request {
	char *peer;
	int last;     // what post or status answered last
	int statuses; // how often status was asked
	bool posted, released;
};

static int agents, requests, registrations;
static int created; // requests since a peer was loaded

static void misuse(const char *what)
{
	fprintf(stderr, "fake NIXL: %s\n", what);
	_Exit(70);
}

// answer is the number after a word of the script: the nth, or the last one.
static int answer(const char *peer, const char *word, int nth)
{
	char script[256];
	snprintf(script, sizeof script, "%s", peer);
	char *save = NULL;
	int code = 0;
	bool in = false;
	for (char *t = strtok_r(script, " #", &save); t != NULL; t = strtok_r(NULL, " #", &save)) {
		if (strcmp(t, word) == 0) {
			in = true;
		} else if (in && (t[0] == '-' || (t[0] >= '0' && t[0] <= '9')) && strlen(t) < 3) {
			code = atoi(t);
			if (nth-- == 0) {
				break;
			}
		} else if (in) {
			break;
		}
	}
	return code;
}

EXPORT int nixl_capi_create_configured_agent(const char *name, const void *config, handle *agent)
{
	(void)config;
	*agent = strdup(name);
	agents++;
	return 0;
}
EXPORT int nixl_capi_destroy_agent(handle agent)
{
	free(agent);
	agents--;
	fprintf(stderr, "fake NIXL: agent ends, %d requests and %d registrations left\n", requests, registrations);
	return 0;
}
EXPORT int nixl_capi_get_plugin_params(handle a, const char *plugin, handle *mems, handle *params)
{
	(void)a, (void)plugin;
	*mems = malloc(1);
	*params = malloc(1);
	return 0;
}
FREE(destroy_mem_list, (handle h), h)
FREE(destroy_params, (handle h), h)
MAKE(create_backend, (handle a, const char *plugin, handle params, handle *out), out)
FREE(destroy_backend, (handle h), h)
MAKE(create_opt_args, (handle *out), out)
FREE(destroy_opt_args, (handle h), h)
OK(opt_args_add_backend, (handle args, handle backend))

// Memory of device 13 cannot be registered. A list is the last device in it.
EXPORT int nixl_capi_create_reg_dlist(uint32_t kind, handle *out)
{
	(void)kind;
	*out = calloc(1, sizeof(uint64_t));
	return 0;
}
FREE(destroy_reg_dlist, (handle h), h)
EXPORT int nixl_capi_reg_dlist_add_desc(handle list, uintptr_t addr, size_t bytes, uint64_t device, const void *extra, size_t n)
{
	(void)addr, (void)bytes, (void)extra, (void)n;
	*(uint64_t *)list = device;
	return 0;
}
EXPORT int nixl_capi_register_mem(handle a, handle list, handle args)
{
	(void)a, (void)args;
	if (*(uint64_t *)list == 13) {
		return -2;
	}
	registrations++;
	return 0;
}
EXPORT int nixl_capi_deregister_mem(handle a, handle list, handle args)
{
	(void)a, (void)list, (void)args;
	registrations--;
	return 0;
}
EXPORT int nixl_capi_get_local_md(handle a, void **data, size_t *bytes)
{
	*data = strdup(a);
	*bytes = strlen(a);
	return 0;
}
EXPORT int nixl_capi_get_local_partial_md(handle a, handle list, void **data, size_t *bytes, handle args)
{
	(void)list, (void)args;
	return nixl_capi_get_local_md(a, data, bytes);
}
EXPORT int nixl_capi_load_remote_md(handle a, const void *data, size_t bytes, char **name)
{
	(void)a;
	created = 0;
	char *peer = strndup(data, bytes);
	int code = answer(peer, "load", 0);
	if (code != 0) {
		free(peer);
		return code;
	}
	*name = peer;
	return 0;
}
OK(invalidate_remote_md, (handle a, const char *name))
MAKE(create_xfer_dlist, (uint32_t kind, handle *out), out)
FREE(destroy_xfer_dlist, (handle h), h)
OK(xfer_dlist_clear, (handle list))
OK(xfer_dlist_add_desc, (handle list, uintptr_t addr, size_t bytes, uint64_t device))

// Of several pieces the second one and all later ones follow the script; the first one succeeds, if the script has the word "second".
EXPORT int nixl_capi_create_xfer_req(handle a, uint32_t op, handle local, handle remote, const char *peer, struct request **out, handle args)
{
	(void)a, (void)op, (void)local, (void)remote, (void)args;
	bool second = strstr(peer, "second") != NULL;
	const char *script = second && created++ == 0 ? "well" : peer;
	int code = answer(script, "create", 0);
	if (code != 0) {
		return code;
	}
	struct request *r = calloc(1, sizeof *r);
	r->peer = strdup(script);
	requests++;
	*out = r;
	return 0;
}
EXPORT int nixl_capi_post_xfer_req(handle a, struct request *r, handle args)
{
	(void)a, (void)args;
	if (r->posted) {
		misuse("a request is posted twice");
	}
	r->posted = true;
	r->last = answer(r->peer, "post", 0);
	return r->last;
}
EXPORT int nixl_capi_get_xfer_status(handle a, struct request *r)
{
	(void)a;
	if (r->released) {
		misuse("status of a released request");
	}
	r->last = answer(r->peer, "status", r->statuses++);
	return r->last;
}
EXPORT int nixl_capi_release_xfer_req(handle a, struct request *r)
{
	(void)a;
	if (agents == 0) {
		misuse("a request is released after its agent");
	}
	// Success is evidence, and so is, since 1.5, a post that was refused for want of the peer.
#ifdef SINCE_1_5
	bool refused = r->last == -6 && r->statuses == 0;
#else
	bool refused = false;
#endif
	if (r->last != 0 && !refused) {
		misuse("a request that may run is released");
	}
	r->released = true;
	return 0;
}
EXPORT int nixl_capi_destroy_xfer_req(struct request *r)
{
	if (!r->released) {
		misuse("a request is destroyed that was not released");
	}
	free(r->peer);
	free(r);
	requests--;
	return 0;
}
EXPORT int nixl_capi_gen_notif(handle a, const char *peer, const void *data, size_t bytes, handle args)
{
	(void)a, (void)data, (void)bytes, (void)args;
	return answer(peer, "notify", 0);
}
OK(get_notifs, (handle a, handle map, handle args))
MAKE(create_notif_map, (handle *out), out)
FREE(destroy_notif_map, (handle h), h)

// One look brings these messages: two senders whose names differ only behind a NUL, and one that cannot be looked up.
static const char *senders[] = {"twin#0000000000000001", "twin#0000000000000001", "lost#0000000000000002", "stranger"};
EXPORT int nixl_capi_notif_map_size(handle map, size_t *n)
{
	(void)map;
	static bool once;
	*n = once ? 0 : sizeof senders / sizeof *senders;
	once = true;
	return 0;
}
EXPORT int nixl_capi_notif_map_get_agent_at(handle map, size_t i, const char **name)
{
	(void)map;
	*name = senders[i];
	return 0;
}
EXPORT int nixl_capi_notif_map_get_notifs_size(handle map, const char *name, size_t *n)
{
	(void)map;
	*n = 2;
	return strncmp(name, "lost", 4) == 0 ? -1 : 0;
}
EXPORT int nixl_capi_notif_map_get_notif(handle map, const char *name, size_t i, const void **data, size_t *bytes)
{
	(void)map, (void)name;
	*data = i == 0 ? "a\0b" : "";
	*bytes = i == 0 ? 3 : 0;
	return 0;
}
OK(notif_map_clear, (handle map))
#ifdef SINCE_1_5
OK(prep_mem_view_local, (void))
OK(opt_args_set_custom_param, (void))
#endif
