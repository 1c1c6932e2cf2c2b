package fence

import (
	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence/internal/request"
)

// Sealed is a body behind which there is a seal, whatever that says.
func Sealed(body string, what byte, token int64) []byte {
	return seal{kind(what), leasehold.Token(token), request.NewID(), request.NewID()}.add([]byte(body))
}
