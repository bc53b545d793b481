// Gather and scatter: copies between pieces scattered in the application's memory and a contiguous block of the bounce arena.
//
// A copy is described by runs (ports.Run, protocol.md, 3), which are expanded here, piece by piece: what travels to the GPU is the runs and their index table, a few
// kilobytes for a paged KV cache. A unit is a piece or, of a piece above 4 KiB, one part of it. A warp takes a batch of at most 32 units: first each lane finds out where one of them is, so
// that the plan's latency is paid once; then all lanes copy them, short ones several at a time.
//
// Loads and stores are as wide as the addresses allow: 16 bytes, else 8, 4, 2 or 1. Of a long piece only the distance between source and destination has to allow it: what is left over
// at its ends goes byte by byte. Loads pass the L1 cache (.cg), which has nothing of use and knows nothing of what other devices write.
//
// The constants and structures are adapters/cuda/plan.go's too.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum : u32 {
    kRowsFast = 8,         // loads in flight in each lane, of 16 bytes
    kRowsRare = 4,         // and of fewer, as only ill-aligned memory needs
    kPart = 4096,          // bytes of the longest unit
    kNoTable = 0xFFFFFFFF, // Run.table of a run with a constant stride
    kWords = 1012,         // of the plan that fit the kernel's parameters, which may be 4096 bytes
    kThreads = 256,
    kBlocks = 2, // that a multiprocessor must be able to hold: 128 registers for a thread
    kAllLanes = 0xFFFFFFFF,
};

// Entry is a run, without what the kernels do not need of it, and its parts.
struct Entry {
    u64 offset; // of piece 0 in the block
    u64 addr;   // in the application's memory
    i64 stride;
    u32 piece; // bytes
    u32 step;  // bytes between pieces in the block
    u32 table;
    u32 parts; // units of a piece
};

// Plan is the kernels' parameter. Its three lists are, for each entry, its first unit, ascending from 0; the entries; and the index table. What of them fits words travels there, which is the
// fastest way to a GPU: first units from the beginning, then entries, at an even word, then indices. The others are in memory that the GPU can read.
struct Plan {
    u64 firsts;  // address of the first units, or 0: in words
    u64 entries; // the same
    u64 index;   // the same
    u64 block;   // address of the block
    u32 count;   // of entries
    u32 units;   // of all entries
    u32 batch;   // units of a batch, 1 to 32
    u32 indexAt; // word of the index table
    u32 words[kWords];
};

static_assert(sizeof(Entry) == 40 && sizeof(Plan) == 48 + 4 * kWords && sizeof(Plan) == 4096, "the layouts of adapters/cuda/plan.go");

template <typename V> __device__ __forceinline__ V load(u64 from) { return __ldcg(reinterpret_cast<const V *>(from)); }
template <typename V> __device__ __forceinline__ void store(u64 to, V v) { *reinterpret_cast<V *>(to) = v; }

// copyBytes copies fewer bytes than a warp has lanes.
__device__ __forceinline__ void copyBytes(u64 to, u64 from, u32 bytes, u32 lane) {
    if (lane < bytes)
        store<u8>(to + lane, load<u8>(from + lane));
}

// copyVectors copies one unit whose two addresses are equal modulo the vector's bytes.
template <typename V, u32 kRows> __device__ __forceinline__ void copyVectors(u64 to, u64 from, u32 bytes, u32 lane) {
    const u32 head = min(static_cast<u32>(-to) & (u32(sizeof(V)) - 1), bytes);
    const u32 count = (bytes - head) / u32(sizeof(V));
    const u32 tail = bytes - head - count * u32(sizeof(V));
    copyBytes(to, from, head, lane);
    to += head;
    from += head;
    for (u32 i = lane; i < count; i += 32 * kRows) {
        const u64 source = from + i * u32(sizeof(V)), destination = to + i * u32(sizeof(V));
        V v[kRows];
#pragma unroll
        for (u32 row = 0; row < kRows; row++)
            if (i + 32 * row < count)
                v[row] = load<V>(source + row * 32 * sizeof(V));
#pragma unroll
        for (u32 row = 0; row < kRows; row++)
            if (i + 32 * row < count)
                store<V>(destination + row * 32 * sizeof(V), v[row]);
    }
    copyBytes(to + u64(count) * sizeof(V), from + u64(count) * sizeof(V), tail, lane);
}

__device__ __forceinline__ void copyOne(u64 to, u64 from, u32 bytes, u32 lane) {
    const u32 skew = static_cast<u32>(to ^ from);
    if (!(skew & 15))
        copyVectors<uint4, kRowsFast>(to, from, bytes, lane);
    else if (!(skew & 7))
        copyVectors<uint2, kRowsRare>(to, from, bytes, lane);
    else if (!(skew & 3))
        copyVectors<u32, kRowsRare>(to, from, bytes, lane);
    else if (!(skew & 1))
        copyVectors<u16, kRowsRare>(to, from, bytes, lane);
    else
        copyVectors<u8, kRowsRare>(to, from, bytes, lane);
}

// copyTogether copies the units that the first count lanes hold. Each has at most 1 << logVectors vectors, which are at most 128, and is aligned for them. A shot of kRows rows of lanes
// holds the vectors of several units.
template <typename V, u32 kRows> __device__ __forceinline__ void copyTogether(u64 to, u64 from, u32 bytes, u32 count, u32 logVectors, u32 lane) {
    const u32 inShot = 32 * kRows >> logVectors;
    for (u32 base = 0; base < count; base += inShot) {
        V v[kRows];
#pragma unroll
        for (u32 row = 0; row < kRows; row++) {
            const u32 slot = row * 32 + lane, unit = base + (slot >> logVectors), at = (slot & ((1 << logVectors) - 1)) * u32(sizeof(V));
            const u64 source = __shfl_sync(kAllLanes, from, unit);
            if (at < __shfl_sync(kAllLanes, bytes, unit) && unit < count)
                v[row] = load<V>(source + at);
        }
#pragma unroll
        for (u32 row = 0; row < kRows; row++) {
            const u32 slot = row * 32 + lane, unit = base + (slot >> logVectors), at = (slot & ((1 << logVectors) - 1)) * u32(sizeof(V));
            const u64 destination = __shfl_sync(kAllLanes, to, unit);
            if (at < __shfl_sync(kAllLanes, bytes, unit) && unit < count)
                store<V>(destination + at, v[row]);
        }
    }
}

// copyBatch copies the units that the first count lanes hold; the others hold no bytes.
__device__ __forceinline__ void copyBatch(u64 to, u64 from, u32 bytes, u32 count, u32 lane) {
    const u32 logWidth = min(__ffs(__reduce_or_sync(kAllLanes, static_cast<u32>(to | from) | bytes)) - 1, 4);
    const u32 vectors = __reduce_max_sync(kAllLanes, bytes) >> logWidth;
    if (vectors > 128) {
        for (u32 i = 0; i < count; i++)
            copyOne(__shfl_sync(kAllLanes, to, i), __shfl_sync(kAllLanes, from, i), __shfl_sync(kAllLanes, bytes, i), lane);
        return;
    }
    const u32 logVectors = 32 - __clz(vectors - 1);
    switch (logWidth) {
    case 4: copyTogether<uint4, kRowsFast>(to, from, bytes, count, logVectors, lane); break;
    case 3: copyTogether<uint2, kRowsRare>(to, from, bytes, count, logVectors, lane); break;
    case 2: copyTogether<u32, kRowsRare>(to, from, bytes, count, logVectors, lane); break;
    case 1: copyTogether<u16, kRowsRare>(to, from, bytes, count, logVectors, lane); break;
    default: copyTogether<u8, kRowsRare>(to, from, bytes, count, logVectors, lane); break;
    }
}

// find is the entry of a unit: the last whose first unit is not above it.
__device__ __forceinline__ u32 find(const u32 *firsts, u32 count, u32 unit) {
    u32 low = 0, n = count;
    while (n > 1) {
        const u32 half = n / 2;
        const bool above = firsts[low + half] > unit;
        low += above ? 0 : half;
        n = above ? half : n - half;
    }
    return low;
}

template <bool kGather> __device__ __forceinline__ void copyAll(const Plan &p) {
    const u32 lane = threadIdx.x & 31, stride = gridDim.x * (kThreads / 32) * p.batch;
    const u32 *firsts = reinterpret_cast<const u32 *>(p.firsts), *index = reinterpret_cast<const u32 *>(p.index);
    const Entry *entries = reinterpret_cast<const Entry *>(p.entries), *inlined = reinterpret_cast<const Entry *>(p.words + ((p.count + 1) & ~1u));
    for (u32 first = (blockIdx.x * kThreads + threadIdx.x) / 32 * p.batch; first < p.units; first += stride) {
        const u32 count = min(p.batch, p.units - first), unit = first + lane;
        u64 inApp = 0, inBlock = 0;
        u32 bytes = 0;
        if (lane < count) {
            const u32 i = firsts ? find(firsts, p.count, unit) : find(p.words, p.count, unit);
            const Entry e = entries ? entries[i] : inlined[i];
            const u32 inRun = unit - (firsts ? firsts[i] : p.words[i]), k = inRun / e.parts, at = (inRun - k * e.parts) * kPart;
            u64 factor = k;
            if (e.table != kNoTable)
                factor = index ? __ldg(index + e.table + k) : p.words[p.indexAt + e.table + k];
            inApp = e.addr + factor * u64(e.stride) + at;
            inBlock = p.block + e.offset + u64(k) * e.step + at;
            bytes = min(e.piece - at, kPart);
        }
        copyBatch(kGather ? inBlock : inApp, kGather ? inApp : inBlock, bytes, count, lane);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) kvb_gather(const __grid_constant__ Plan p) { copyAll<true>(p); }
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) kvb_scatter(const __grid_constant__ Plan p) { copyAll<false>(p); }
