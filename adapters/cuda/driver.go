//go:build cuda

package cuda

/*
#include <cuda.h>

// enter makes the context current on the calling thread.
static CUresult enter(CUcontext context) {
	CUcontext now;
	CUresult code = cuCtxGetCurrent(&now);
	if (code != CUDA_SUCCESS || now == context)
		return code;
	return cuCtxSetCurrent(context);
}

// The steps of a launch, for the answer of launch.
enum { stepEnter, stepFlush, stepUpload, stepLaunch, stepRecord };

typedef unsigned long long answer; // the step in the upper half, its CUresult in the lower
static answer answered(int step, CUresult code) { return (answer)step << 32 | (unsigned)code; }

// launch queues a copy. What it calls neither waits nor allocates; but for the flush, which waits for writes that are on their way over PCIe.
static answer launch(CUcontext context, CUstream stream, CUevent event, CUfunction kernel, unsigned blocks, unsigned threads, void *plan,
		CUdeviceptr to, const void *from, size_t upload, int flush) {
	CUresult code = enter(context);
	if (code != CUDA_SUCCESS)
		return answered(stepEnter, code);
	if (flush && (code = cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)) != CUDA_SUCCESS)
		return answered(stepFlush, code);
	if (upload > 0 && (code = cuMemcpyHtoDAsync(to, from, upload, stream)) != CUDA_SUCCESS)
		return answered(stepUpload, code);
	void *parameters[] = {plan};
	if ((code = cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, 0)) != CUDA_SUCCESS)
		return answered(stepLaunch, code);
	return answered(stepRecord, cuEventRecord(event, stream));
}

static CUresult query(CUcontext context, CUevent event) {
	CUresult code = enter(context);
	return code == CUDA_SUCCESS ? cuEventQuery(event) : code;
}

// pinned allocates host memory that the device can read.
static CUresult pinned(size_t bytes, void **host, CUdeviceptr *device) {
	CUresult code = cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (code == CUDA_SUCCESS && (code = cuMemHostGetDevicePointer(device, *host, 0)) != CUDA_SUCCESS)
		cuMemFreeHost(*host);
	return code;
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/cu"
)

// What gorgonia.org/cu does not offer, or not without allocating: pinned memory, errors' names, and the calls of the hot path.

// handle is CUDA's own handle in a value of gorgonia's, which is a structure of nothing else.
func handle[T cu.CUContext | cu.Stream | cu.Event | cu.Function](v T) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&v))
}

// Such a structure of another size would not compile here.
var (
	_ [unsafe.Sizeof(unsafe.Pointer(nil))]byte = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ [unsafe.Sizeof(unsafe.Pointer(nil))]byte = [unsafe.Sizeof(cu.Stream{})]byte{}
	_ [unsafe.Sizeof(unsafe.Pointer(nil))]byte = [unsafe.Sizeof(cu.Event{})]byte{}
	_ [unsafe.Sizeof(unsafe.Pointer(nil))]byte = [unsafe.Sizeof(cu.Function{})]byte{}
)

// Error is an answer of CUDA's driver other than success.
type Error struct {
	Op   string // the driver's function
	Code int    // CUresult
	Name string // CUDA's name for it: CUDA_ERROR_ILLEGAL_ADDRESS
	Text string // CUDA's description
}

func (e *Error) Error() string {
	return fmt.Sprintf("cuda: %s: %s (%d): %s", e.Op, e.Name, e.Code, e.Text)
}

func newError(op string, code int) error {
	e := &Error{Op: op, Code: code, Name: "an unknown error", Text: "this driver has no description of it"}
	var text *C.char
	if C.cuGetErrorName(C.CUresult(code), &text) == C.CUDA_SUCCESS {
		e.Name = C.GoString(text)
	}
	if C.cuGetErrorString(C.CUresult(code), &text) == C.CUDA_SUCCESS {
		e.Text = C.GoString(text)
	}
	return e
}

func check(op string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return newError(op, int(code))
}

// named gives an error of gorgonia's, which is a CUresult, CUDA's name.
func named(op string, err error) error {
	if err == nil {
		return nil
	}
	if code := reflect.ValueOf(err); code.CanInt() {
		return newError(op, int(code.Int()))
	}
	return fmt.Errorf("cuda: %s: %w", op, err)
}

// current makes a context current on the calling thread.
func current(context unsafe.Pointer) error {
	return check("cuCtxSetCurrent", C.enter(C.CUcontext(context)))
}

// eventStatus asks for an event without waiting.
func eventStatus(context, event unsafe.Pointer) (done bool, err error) {
	switch code := C.query(C.CUcontext(context), C.CUevent(event)); code {
	case C.CUDA_SUCCESS:
		return true, nil
	case C.CUDA_ERROR_NOT_READY:
		return false, nil
	default:
		return false, newError("cuEventQuery", int(code))
	}
}

// launchSteps name the calls of a launch.
var launchSteps = [...]string{
	C.stepEnter:  "cuCtxSetCurrent",
	C.stepFlush:  "cuFlushGPUDirectRDMAWrites",
	C.stepUpload: "cuMemcpyHtoDAsync",
	C.stepLaunch: "cuLaunchKernel",
	C.stepRecord: "cuEventRecord",
}

// order is what a launch needs.
type order struct {
	context, stream, event, kernel unsafe.Pointer
	blocks                         int
	plan                           *launchPlan
	to                             uint64         // device memory that gets the first upload bytes at from
	from                           unsafe.Pointer // pinned
	upload                         uint64
	flush                          bool
}

// launch queues a copy. untouched says of an error that the copy was not queued: cuLaunchKernel was not reached. An error of that call itself may be an earlier launch's.
func launch(o order) (untouched bool, err error) {
	flush := C.int(0)
	if o.flush {
		flush = 1
	}
	answer := C.launch(C.CUcontext(o.context), C.CUstream(o.stream), C.CUevent(o.event), C.CUfunction(o.kernel), C.uint(o.blocks), threadsOfBlock, unsafe.Pointer(o.plan),
		C.CUdeviceptr(o.to), o.from, C.size_t(o.upload), flush)
	step, code := int(answer>>32), int(answer&0xFFFFFFFF)
	if code == C.CUDA_SUCCESS {
		return false, nil
	}
	return step < C.stepLaunch, newError(launchSteps[step], code)
}

// pinnedMemory is host memory that the device reads, in the current context.
type pinnedMemory struct {
	host   unsafe.Pointer
	device uint64 // its address there
}

func allocatePinned(bytes uint64) (pinnedMemory, error) {
	var m pinnedMemory
	var device C.CUdeviceptr
	err := check("cuMemHostAlloc", C.pinned(C.size_t(bytes), &m.host, &device))
	m.device = uint64(device)
	return m, err
}

func (m pinnedMemory) free() error { return named("cuMemFreeHost", cu.MemFreeHost(m.host)) }

// rdmaOrdering is what decides whether writes of a NIC have to be flushed before a kernel reads them.
func rdmaOrdering(device cu.Device) (flush bool, err error) {
	var supported, ordering, options C.int
	for attribute, value := range map[C.CUdevice_attribute]*C.int{
		C.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:            &supported,
		C.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:      &ordering,
		C.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: &options,
	} {
		if err := check("cuDeviceGetAttribute", C.cuDeviceGetAttribute(value, attribute, C.CUdevice(device))); err != nil {
			return false, err
		}
	}
	if supported == 0 || ordering >= C.CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER {
		return false, nil
	}
	if options&C.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST == 0 {
		return false, fmt.Errorf("cuda: device %d takes writes of NICs but neither orders nor flushes them, so that a scatter could read old bytes: this device can't be used", int(device))
	}
	return true, nil
}
