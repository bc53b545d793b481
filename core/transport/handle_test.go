package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatusNames(t *testing.T) {
	for status, name := range map[Status]string{InProgress: "in progress", Succeeded: "succeeded", Failed: "failed", Failed + 1: "unknown status", ^Status(0): "unknown status"} {
		require.Equal(t, name, status.String())
	}
}
