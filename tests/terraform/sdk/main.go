// Command terraform-provider-legacy is a provider with the older library, for tests.
//
// The attribute fail of its resource makes a call fail: ACTION:FAULT, where ACTION is create, read, update or delete,
// and FAULT is error, half (an error after the change), panic or hang.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-cty/cty"
	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/hashicorp/terraform-plugin-sdk/v2/plugin"
)

func main() {
	plugin.Serve(&plugin.ServeOpts{ProviderFunc: legacy})
}

func legacy() *schema.Provider {
	return &schema.Provider{
		Schema: map[string]*schema.Schema{
			// The folder where each object is a file. Without it, every object exists.
			"folder": {Type: schema.TypeString, Optional: true},
		},
		ConfigureContextFunc: func(_ context.Context, d *schema.ResourceData) (any, diag.Diagnostics) {
			return d.Get("folder").(string), nil
		},
		ResourcesMap: map[string]*schema.Resource{"legacy_thing": thing()},
	}
}

func abc() *schema.Resource {
	return &schema.Resource{Schema: map[string]*schema.Schema{
		"a": {Type: schema.TypeString, Optional: true},
		"b": {Type: schema.TypeString, Computed: true},
		"c": {Type: schema.TypeString, Optional: true, Computed: true},
	}}
}

func thing() *schema.Resource {
	timeout := time.Minute
	return &schema.Resource{
		SchemaVersion: 1,
		StateUpgraders: []schema.StateUpgrader{{
			Version: 0,
			Type:    cty.Object(map[string]cty.Type{"id": cty.String, "title": cty.String}),
			Upgrade: func(_ context.Context, state map[string]any, _ any) (map[string]any, error) {
				state["name"] = state["title"]
				delete(state, "title")
				return state, nil
			},
		}},
		Schema: map[string]*schema.Schema{
			"name":       {Type: schema.TypeString, Required: true, ForceNew: true},
			"size":       {Type: schema.TypeFloat, Optional: true},
			"count_of":   {Type: schema.TypeInt, Optional: true, Default: 3},
			"both":       {Type: schema.TypeString, Optional: true, Computed: true},
			"tags":       {Type: schema.TypeSet, Optional: true, Elem: &schema.Schema{Type: schema.TypeString}},
			"write_only": {Type: schema.TypeString, Optional: true, WriteOnly: true},
			"fail":       {Type: schema.TypeString, Optional: true},
			"anycase": {Type: schema.TypeString, Optional: true, DiffSuppressFunc: func(_, old, new string, _ *schema.ResourceData) bool {
				return strings.EqualFold(old, new)
			}},
			"digest": {Type: schema.TypeString, Optional: true, StateFunc: func(value any) string {
				return fmt.Sprintf("%x", sha256.Sum256([]byte(value.(string))))[:8]
			}},
			"list_block": {Type: schema.TypeList, Optional: true, Elem: abc()},
			"set_block":  {Type: schema.TypeSet, Optional: true, Elem: abc()},
		},
		Timeouts:      &schema.ResourceTimeout{Create: &timeout, Delete: &timeout},
		CreateContext: create,
		ReadContext:   read,
		UpdateContext: update,
		DeleteContext: remove,
		Importer:      &schema.ResourceImporter{StateContext: schema.ImportStatePassthroughContext},
	}
}

// fault does what the attribute fail asks for in an action; it returns whether to fail after the change.
func fault(ctx context.Context, action string, d *schema.ResourceData) (bool, diag.Diagnostics) {
	kind, found := strings.CutPrefix(d.Get("fail").(string), action+":")
	if !found {
		return false, nil
	}
	switch kind {
	case "panic":
		panic("the configuration asks for it")
	case "hang":
		<-ctx.Done()
		return false, diag.FromErr(ctx.Err())
	case "half":
		return true, nil
	}
	return false, diag.Errorf("the configuration asks for it")
}

func file(d *schema.ResourceData, meta any) string {
	if folder, _ := meta.(string); folder != "" {
		return filepath.Join(folder, d.Id())
	}
	return ""
}

func create(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
	half, failed := fault(ctx, "create", d)
	if failed != nil {
		return failed
	}
	d.SetId("id-" + d.Get("name").(string))
	if path := file(d, meta); path != "" {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return diag.FromErr(err)
		}
	}
	if _, set := d.GetOk("both"); !set {
		if err := d.Set("both", "computed both"); err != nil {
			return diag.FromErr(err)
		}
	}
	if half {
		return diag.Errorf("half done")
	}
	return nil
}

func read(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
	if _, failed := fault(ctx, "read", d); failed != nil {
		return failed
	}
	if path := file(d, meta); path != "" {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			d.SetId("")
			return nil
		}
	}
	return diag.FromErr(d.Set("name", strings.TrimPrefix(d.Id(), "id-")))
}

func update(ctx context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
	half, failed := fault(ctx, "update", d)
	if half {
		return diag.Errorf("half done")
	}
	return failed
}

func remove(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
	if _, failed := fault(ctx, "delete", d); failed != nil {
		return failed
	}
	if path := file(d, meta); path != "" {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return diag.FromErr(err)
		}
	}
	return nil
}
