package ports

// The mocks follow the interfaces; a test in ports/mocks fails when they do not.

//go:generate go tool mockgen -source=clock.go -destination=mocks/clock.go -package=mocks
//go:generate go tool mockgen -source=compute.go -destination=mocks/compute.go -package=mocks
//go:generate go tool mockgen -source=control.go -destination=mocks/control.go -package=mocks
//go:generate go tool mockgen -source=engine.go -destination=mocks/engine.go -package=mocks
