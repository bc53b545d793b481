package wire

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Inside the package: a message that is too large for its length field would need 4 GiB.
func TestCheckLength(t *testing.T) {
	require.NoError(t, checkLength(TypeWant, "chunk_bytes", math.MaxUint32))
	err := checkLength(TypeWant, "chunk_bytes", math.MaxUint32+1)
	var field *FieldError
	require.True(t, errors.As(err, &field))
	require.Equal(t, "chunk_bytes", field.Field)
}
