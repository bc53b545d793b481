package zmq

import (
	"fmt"

	zmq4 "github.com/pebbe/zmq4"
)

// Version is the version of the libzmq that this process runs with, as "4.3.4".
func Version() string {
	major, minor, patch := zmq4.Version()
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}

// HasCurve reports whether that libzmq was built with CURVE.
func HasCurve() bool { return zmq4.HasCurve() }
