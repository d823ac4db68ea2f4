package cell

import "github.com/sunaba-dev/sunaba/internal/egress/link"

func (o *conn) http(f *link.Flow) {
	o.deny("mode_unknown", "this build cannot carry the connection as the policy says")
}
