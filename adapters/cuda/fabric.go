//go:build cuda

package cuda

/*
#include <cuda.h>

// Of CUDA 12.3 and 12.4; the driver tells by its answers whether it knows them.
enum { handleFabric = 0x8, attributeFabricSupported = 128 };

// The steps of an allocation, for the answer of fabricAllocate.
enum { stepGranularity, stepCreate, stepExport, stepReserve, stepMap, stepAccess };

// fabricAllocate takes memory whose handle can be exported to other machines, and gives it an address. On an error nothing is left. *step is the call that failed.
static CUresult fabricAllocate(int device, size_t *bytes, CUmemGenericAllocationHandle *handle, CUdeviceptr *address, int *step) {
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = (CUmemAllocationHandleType)handleFabric,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
	int rdma = 0;
	if (cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) == CUDA_SUCCESS && rdma)
		properties.allocFlags.gpuDirectRDMACapable = 1;
	size_t granularity = 0;
	*step = stepGranularity;
	CUresult code = cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (code != CUDA_SUCCESS)
		return code;
	*bytes = (*bytes + granularity - 1) / granularity * granularity;
	*step = stepCreate;
	if ((code = cuMemCreate(handle, *bytes, &properties, 0)) != CUDA_SUCCESS)
		return code;
	// A driver without access to the fabric creates such memory and then exports no handle: peers could not open it.
	char exported[64];
	*step = stepExport;
	if ((code = cuMemExportToShareableHandle(exported, *handle, (CUmemAllocationHandleType)handleFabric, 0)) != CUDA_SUCCESS)
		goto release;
	*step = stepReserve;
	if ((code = cuMemAddressReserve(address, *bytes, granularity, 0, 0)) != CUDA_SUCCESS)
		goto release;
	*step = stepMap;
	if ((code = cuMemMap(*address, *bytes, 0, *handle, 0)) != CUDA_SUCCESS)
		goto unreserve;
	CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	*step = stepAccess;
	if ((code = cuMemSetAccess(*address, *bytes, &access, 1)) == CUDA_SUCCESS)
		return code;
	cuMemUnmap(*address, *bytes);
unreserve:
	cuMemAddressFree(*address, *bytes);
release:
	cuMemRelease(*handle);
	return code;
}

static int fabricSupported(int device) {
	int supported = 0;
	return cuDeviceGetAttribute(&supported, (CUdevice_attribute)attributeFabricSupported, device) == CUDA_SUCCESS && supported;
}
*/
import "C"

import (
	"errors"
	"fmt"
)

// fabricMemory is memory that GPUs of other machines reach over NVLink, where there is an NVLink fabric and the driver's channels for it (CUDA Driver API, "Virtual Memory Management",
// CU_MEM_HANDLE_TYPE_FABRIC).
type fabricMemory struct {
	handle  C.CUmemGenericAllocationHandle
	address C.CUdeviceptr
	bytes   C.size_t
}

// offersFabric reports whether the driver says that it has fabric memory. Whether it gives any is another question.
func (d *Device) offersFabric() bool { return C.fabricSupported(C.int(d.device)) != 0 }

// fabricSteps name the calls of an allocation.
var fabricSteps = [...]string{
	C.stepGranularity: "cuMemGetAllocationGranularity",
	C.stepCreate:      "cuMemCreate",
	C.stepExport:      "cuMemExportToShareableHandle",
	C.stepReserve:     "cuMemAddressReserve",
	C.stepMap:         "cuMemMap",
	C.stepAccess:      "cuMemSetAccess",
}

// allocateFabric is Allocate for fabric memory.
func (d *Device) allocateFabric(bytes uint64) (*Memory, error) {
	f := &fabricMemory{bytes: C.size_t(bytes)}
	err := d.Do(func() error {
		var step C.int
		code := C.fabricAllocate(C.int(d.device), &f.bytes, &f.handle, &f.address, &step)
		return check(fabricSteps[step], code)
	})
	if err != nil {
		return nil, fmt.Errorf("%d bytes of device %d's fabric memory: %w", bytes, d.ordinal, err)
	}
	return &Memory{device: d, base: uint64(f.address), bytes: bytes, fabric: f}, nil
}

// free gives the memory back, in the current context.
func (f *fabricMemory) free() error {
	return errors.Join(
		check("cuMemUnmap", C.cuMemUnmap(f.address, f.bytes)),
		check("cuMemAddressFree", C.cuMemAddressFree(f.address, f.bytes)),
		check("cuMemRelease", C.cuMemRelease(f.handle)),
	)
}
