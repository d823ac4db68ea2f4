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
		// Names of several suffixes lie below these.
		"on.aws", "windows.net", "core.windows.net", "azure.com", "cloudapp.azure.com", "azure.net", "backblazeb2.com",
	} {
		if n == t {
			return tenants
		}
	}
	// The list has names, as co.uk, and all names below one, as *.kawasaki.jp: then
	// the names below those have different owners, and a wildcard takes them all.
	for _, name := range []string{string(n), "x." + string(n)} {
		switch s, managed := publicsuffix.PublicSuffix(name); {
		case s != name:
		case managed:
			return icann
		default:
			return tenants
		}
	}
	return none
}
