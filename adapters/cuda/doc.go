// Package cuda is the GpuCompute of NVIDIA GPUs: an arena in device memory, and the kernels of package kernels to gather and scatter.
//
// It is built with the tag cuda (make build-cuda), over gorgonia.org/cu. That package initialises the driver when a program starts, and ends the program where there is no
// GPU: so a program with this tag is for machines with one. Without the tag the package holds only the plan of a launch, which needs no GPU to be tested.
//
// # Contexts
//
// All work is done in the device's primary context, which the CUDA runtime, PyTorch and UCX use too. Whatever thread calls, it is made current there: calls of the reactor leave it current
// on the reactor's thread, where UCX needs it; all others put back what was there.
//
// # A launch
//
// A launch writes the runs and the index table into the kernel's parameters as far as they fit, which about 92 runs without a table do, and the rest into a pinned buffer, where the kernel
// reads it; only if there are more than 1012 runs is the buffer copied to the device ahead of the kernel. It queues the kernel and an event on one of Config.Contexts streams,
// and returns. Nothing in it waits for the device, and nothing is allocated unless a plan is larger than all before it. The end is seen by polling the event.
//
// # Visibility
//
// A gather is visible to the engine once its event answered CopyDone: CUDA makes what a kernel wrote visible to the host and to other devices when the host has seen an event recorded after it.
//
// A scatter reads what a peer wrote. What a peer's GPU wrote over NVLink or CUDA IPC is in place when the peer saw its own event, before it sent DATA. What a NIC wrote (GPUDirect RDMA) is
// in order for the owning device from CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER on, which CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING tells; on a device
// below that, each scatter calls cuFlushGPUDirectRDMAWrites first (CUDA Driver API, "Device Management" and "GPU Direct RDMA").
//
// # Failure
//
// An error of CUDA is final: after it no copy is known to have ended, every event fails, and every later launch is refused (ErrNotLaunched). The process has to be replaced.
package cuda
