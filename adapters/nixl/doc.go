// Package nixl is the TransferEngine over NVIDIA's NIXL, through its C library libnixl_capi.so with the UCX backend.
//
// The library is found and opened at run time (Find says where it looks); nothing of NIXL is needed to build. One process loads one copy.
//
// # Threads
//
// Over host memory NIXL copies the bytes inside its post call, holding the lock that every other call needs, and the first connection to a peer takes
// about 10 ms. Therefore all NIXL calls of an engine for host memory are made by one locked OS thread, and the port's methods only queue
// work and read results; large writes are cut into pieces of at most 1 MiB, and the thread looks for messages between them. For device memory, where a post takes
// microseconds, the calls are made on the caller's thread, except connecting to peers (architecture.md, "Ports"; gpu.md). In both modes the same
// code, the driver, makes them; the mode only says who runs it.
//
// # Evidence
//
// NIXL has no way to stop a transfer, and its errors do not say whether bytes may still move (nixl.md, 1 to 3). The rules:
//
//   - Success of every piece is success. It is latched.
//   - A request that could not be created was not posted. Nor was one whose post answered "not found", which NIXL does before the backend is asked, since 1.5.
//   - Any other failure leaves the piece unproved: the transfer is failed-unknown, and NIXL's request is kept until the engine is closed. If a later look says that it
//     succeeded after all, so does the transfer.
//   - A request that may be running is never released, whatever the caller does with its Transfer.
//   - A peer's metadata is dropped, or replaced by one that took memory back, only when no piece to it is running, because that would hide how it ended.
package nixl
