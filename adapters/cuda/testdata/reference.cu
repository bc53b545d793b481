// Kernels of the tests: what the copies are compared with, and a way to keep the device busy.

typedef unsigned int u32;
typedef unsigned long long u64;

// one_block_per_piece is the plain way to copy scattered pieces: an expanded plan of three arrays, a block for each piece.
extern "C" __global__ void one_block_per_piece(const u64 *from, const u64 *to, const u64 *bytes) {
    const uint4 *a = reinterpret_cast<const uint4 *>(from[blockIdx.x]);
    uint4 *b = reinterpret_cast<uint4 *>(to[blockIdx.x]);
    for (u64 i = threadIdx.x; i < bytes[blockIdx.x] / 16; i += blockDim.x)
        b[i] = a[i];
}

// spin keeps its blocks on the device until the host sets the flag. It counts the blocks that have started.
extern "C" __global__ void spin(volatile u32 *flag, u32 *started) {
    if (threadIdx.x == 0)
        atomicAdd_system(started, 1);
    while (!*flag) {
    }
}

// delay keeps a stream busy for a while.
extern "C" __global__ void delay(u64 nanoseconds) {
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

// pattern writes bytes that depend on their place and the salt, from which a wrong or missing one is told.
extern "C" __global__ void pattern(unsigned char *to, u64 bytes, u64 salt) {
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < bytes; i += u64(gridDim.x) * blockDim.x)
        to[i] = static_cast<unsigned char>(((i + salt) * 0x9E3779B97F4A7C15ull) >> 56);
}

// differences counts the bytes that are not pattern's.
extern "C" __global__ void differences(const unsigned char *at, u64 bytes, u64 salt, u64 *count) {
    u64 bad = 0;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < bytes; i += u64(gridDim.x) * blockDim.x)
        bad += at[i] != static_cast<unsigned char>(((i + salt) * 0x9E3779B97F4A7C15ull) >> 56);
    if (bad)
        atomicAdd(count, bad);
}
