package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

func keyVerbs() []boxVerb {
	return []boxVerb{
		{name: "create", args: "--tenant NAME --principal NAME --scopes LIST", help: "make a key and print it, this once", run: keyCreate, flags: keyVerbFlags},
		{name: "ls", args: "[--tenant NAME]", help: "list keys", run: keyList, flags: keyVerbFlags},
		{name: "rm", args: "KEY...", help: "make keys useless for good; KEY is the id that ls shows", run: keyRemove, least: 1, most: -1},
	}
}

func keyUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba key COMMAND [flags] [ARG...]     who may call a daemon (takes a key with the scope admin)

commands:
`)
	for _, v := range keyVerbs() {
		describe(w, strings.TrimSpace(v.name+" "+v.args), v.help)
	}
	fmt.Fprint(w, "\nflags:\n")
	describe(w, "--tenant NAME", "whose boxes it sees")
	describe(w, "--principal NAME", "who it is for, as boxes and logs show it")
	describe(w, "--scopes LIST", "what it may do, with commas between: read, write, exec, admin")
	describe(w, "--server URL, -o FORMAT", "as for `sunaba box`")
}

// keyCommand is `sunaba key`.
func keyCommand(args []string) int { return nounCommand("key", keyVerbs(), keyUsage, args) }

func keyVerbFlags(fs *flag.FlagSet, b *boxCall) {
	fs.StringVar(&b.newKey.Tenant, "tenant", "", "")
	fs.StringVar(&b.newKey.Principal, "principal", "", "")
	fs.Func("scopes", "", func(s string) error {
		for scope := range strings.SplitSeq(s, ",") {
			b.newKey.Scopes = append(b.newKey.Scopes, box.Scope(strings.TrimSpace(scope)))
		}
		return nil
	})
}

func keyCreate(ctx context.Context, b *boxCall) (int, error) {
	k, secret, err := b.c.CreateKey(ctx, box.Caller{}, b.newKey)
	if err != nil {
		return 0, err
	}
	return 0, b.show(struct {
		keyJSON
		Secret string `json:"key"`
	}{keyJSONOf(k), secret}, func() { fmt.Println(secret) })
}

func keyList(ctx context.Context, b *boxCall) (int, error) {
	keys, err := b.c.ListKeys(ctx, box.Caller{}, b.newKey.Tenant)
	if err != nil {
		return 0, err
	}
	all := []keyJSON{}
	for _, k := range keys {
		all = append(all, keyJSONOf(k))
	}
	return table(b, "keys", all, "KEY\tTENANT\tPRINCIPAL\tSCOPES", func(k keyJSON) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", oneLine(k.ID), oneLine(k.Tenant), oneLine(k.Principal), scopeList(k.Scopes))
	})
}

// keyRemove revokes what it can, and tells of the first that it could not.
func keyRemove(ctx context.Context, b *boxCall) (int, error) {
	return b.removed(func(id string) error { return b.c.RevokeKey(ctx, box.Caller{}, id) })
}

// keyJSON is a key in a document.
type keyJSON struct {
	ID        string      `json:"id"`
	Tenant    string      `json:"tenant"`
	Principal string      `json:"principal"`
	Scopes    []box.Scope `json:"scopes"`
}

func keyJSONOf(k box.Key) keyJSON { return keyJSON{k.ID, k.Tenant, k.Principal, k.Scopes} }

func scopeList(scopes []box.Scope) string {
	var all []string
	for _, s := range scopes {
		all = append(all, oneLine(string(s)))
	}
	return strings.Join(all, ",")
}
