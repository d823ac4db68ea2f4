package rules

import (
	"golang.org/x/net/publicsuffix"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

type suffix int

const (
	none suffix = iota
	icann
	tenants
)

// publicSuffix says whether names directly below a name have different owners:
// a registry's customers (icann) or those of a company (tenants). The list is
// publicsuffix.org's, as of the pinned module.
func publicSuffix(n hostname.Name) suffix {
	for _, t := range []hostname.Name{
		// Known to have a customer in each name, and not on the list.
		"amazonaws.com", "googleapis.com", "r2.cloudflarestorage.com", "blob.storage.azure.net", "ngrok.io", "sharepoint.com",
		"zendesk.com", "slack.com", "atlassian.net", "my.salesforce.com", "auth0.com", "okta.com",
	} {
		if n == t {
			return tenants
		}
	}
	s, managed := publicsuffix.PublicSuffix(string(n))
	switch {
	case s != string(n):
		return none
	case managed:
		return icann
	}
	return tenants
}
