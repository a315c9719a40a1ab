// Command terraform-provider-frame is a provider of protocol 6 for tests, with every kind of attribute and block.
//
// The attribute fail of its resource makes a call fail: ACTION:FAULT, where ACTION is plan, create, read, update or
// delete, and FAULT is error, half (an error after the change), panic or hang. A token has the ACTIONs open and renew.
// The objects of frame_object are in object.go.
package main

import (
	"context"
	"fmt"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	eschema "github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	pschema "github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

func main() {
	options := providerserver.ServeOpts{Address: "registry.terraform.io/stoa/frame"}
	if err := providerserver.Serve(context.Background(), func() provider.Provider { return &frame{} }, options); err != nil {
		log.Fatal(err)
	}
}

type frame struct{}

func (*frame) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "frame"
}

func (*frame) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = pschema.Schema{Attributes: map[string]pschema.Attribute{
		// The folder where each object is a file. Without it, every object exists.
		"folder": pschema.StringAttribute{Optional: true},
	}}
}

func (*frame) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var folder types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("folder"), &folder)...)
	resp.ResourceData = folder.ValueString()
	resp.EphemeralResourceData = folder.ValueString()
	fmt.Println("configured")
}

func (*frame) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		func() resource.Resource { return &thing{} },
		func() resource.Resource { return &named{} },
		func() resource.Resource { return &object{} },
	}
}

func (*frame) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return &echo{} }}
}

func (*frame) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{func() ephemeral.EphemeralResource { return &token{} }}
}

// token is an ephemeral resource. The file token-NAME has a line for each call, and its value has the number of opens.
type token struct{ folder string }

func (*token) Metadata(_ context.Context, _ ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = "frame_token"
}

func (*token) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = eschema.Schema{Attributes: map[string]eschema.Attribute{
		"name":  eschema.StringAttribute{Required: true},
		"fail":  eschema.StringAttribute{Optional: true},
		"renew": eschema.BoolAttribute{Optional: true},
		"value": eschema.StringAttribute{Computed: true, Sensitive: true},
	}}
}

func (t *token) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	t.folder, _ = req.ProviderData.(string)
}

// notes guards the files of tokens, which close at once.
var notes sync.Mutex

// note adds a line to the file of a token, and returns how many there are.
func (t *token) note(name, line string, diagnostics *diag.Diagnostics) int {
	notes.Lock()
	defer notes.Unlock()
	file := filepath.Join(t.folder, "token-"+name)
	lines, err := os.ReadFile(file)
	if err == nil || os.IsNotExist(err) {
		err = os.WriteFile(file, append(lines, line+"\n"...), 0o600)
	}
	if err != nil {
		diagnostics.AddError("Not noted", err.Error())
	}
	return strings.Count(string(lines), "open\n") + 1
}

func (t *token) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var name types.String
	var renew types.Bool
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("name"), &name)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("renew"), &renew)...)
	fault(ctx, "open", req.Config.Raw, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	opened := t.note(name.ValueString(), "open", &resp.Diagnostics)
	resp.Result.Raw = req.Config.Raw
	value := fmt.Sprintf("hunter2-%s-%d", name.ValueString(), opened)
	resp.Diagnostics.Append(resp.Result.SetAttribute(ctx, path.Root("value"), value)...)
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, "name", []byte(fmt.Sprintf("%q", name.ValueString())))...)
	if kind, found := faultOf("renew", req.Config.Raw); found {
		resp.Diagnostics.Append(resp.Private.SetKey(ctx, "renew", []byte(fmt.Sprintf("%q", kind)))...)
	}
	if renew.ValueBool() {
		resp.RenewAt = time.Now().Add(500 * time.Millisecond)
	}
}

func (t *token) Renew(ctx context.Context, req ephemeral.RenewRequest, resp *ephemeral.RenewResponse) {
	name, diagnostics := req.Private.GetKey(ctx, "name")
	resp.Diagnostics.Append(diagnostics...)
	t.note(strings.Trim(string(name), "\""), "renew", &resp.Diagnostics)
	kind, diagnostics := req.Private.GetKey(ctx, "renew")
	resp.Diagnostics.Append(diagnostics...)
	if string(kind) == `"hang"` {
		<-ctx.Done()
	}
	resp.RenewAt = time.Now().Add(500 * time.Millisecond)
}

func (t *token) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	name, diagnostics := req.Private.GetKey(ctx, "name")
	resp.Diagnostics.Append(diagnostics...)
	t.note(strings.Trim(string(name), "\""), "close", &resp.Diagnostics)
}

type echo struct{}

func (*echo) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = "frame_echo"
}

func (*echo) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = dschema.Schema{Attributes: map[string]dschema.Attribute{
		"value": dschema.DynamicAttribute{Optional: true},
		"text":  dschema.StringAttribute{Computed: true},
	}}
}

func (*echo) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var value types.Dynamic
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("value"), &value)...)
	resp.State.Raw = req.Config.Raw
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("text"), value.String())...)
}

// thing is a resource with everything.
type thing struct{ folder string }

func (*thing) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "frame_thing"
}

func (t *thing) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	t.folder, _ = req.ProviderData.(string)
}

// abc are an optional attribute, a computed one, and one that is both.
func abc() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"a": schema.StringAttribute{Optional: true},
		"b": schema.StringAttribute{Computed: true},
		"c": schema.StringAttribute{Optional: true, Computed: true},
	}
}

func (*thing) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	object := schema.NestedAttributeObject{Attributes: abc()}
	block := schema.NestedBlockObject{Attributes: abc()}
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		Version: 1,
		Attributes: map[string]schema.Attribute{
			"id":          schema.StringAttribute{Computed: true, PlanModifiers: keep},
			"name":        schema.StringAttribute{Required: true, PlanModifiers: replace},
			"size":        schema.NumberAttribute{Optional: true, Computed: true},
			"both":        schema.StringAttribute{Optional: true, Computed: true},
			"any":         schema.DynamicAttribute{Optional: true},
			"tags":        schema.SetAttribute{Optional: true, ElementType: types.StringType},
			"labels":      schema.MapAttribute{Optional: true, ElementType: types.StringType},
			"secret":      schema.StringAttribute{Optional: true, Sensitive: true},
			"write_only":  schema.StringAttribute{Optional: true, WriteOnly: true},
			"fail":        schema.StringAttribute{Optional: true},
			"single":      schema.SingleNestedAttribute{Optional: true, Attributes: abc()},
			"both_single": schema.SingleNestedAttribute{Optional: true, Computed: true, Attributes: abc()},
			"list":        schema.ListNestedAttribute{Optional: true, NestedObject: object},
			"set":         schema.SetNestedAttribute{Optional: true, NestedObject: object},
			"map":         schema.MapNestedAttribute{Optional: true, NestedObject: object},
		},
		Blocks: map[string]schema.Block{
			"single_block": schema.SingleNestedBlock{Attributes: abc()},
			"list_block":   schema.ListNestedBlock{NestedObject: block},
			"set_block":    schema.SetNestedBlock{NestedObject: block},
		},
	}
}

// faultOf returns what the attribute fail asks for in an action.
func faultOf(action string, raw tftypes.Value) (string, bool) {
	var attributes map[string]tftypes.Value
	var fail string
	if raw.IsNull() || raw.As(&attributes) != nil || !attributes["fail"].IsKnown() || attributes["fail"].As(&fail) != nil {
		return "", false
	}
	return strings.CutPrefix(fail, action+":")
}

// fault does what the attribute fail asks for in an action; it returns whether to fail after the change.
func fault(ctx context.Context, action string, raw tftypes.Value, diagnostics *diag.Diagnostics) bool {
	kind, found := faultOf(action, raw)
	if !found {
		return false
	}
	switch kind {
	case "lie":
	case "warn":
		diagnostics.AddAttributeWarning(path.Root("fail"), "Warned", "The configuration asks for it.")
	case "flood":
		line := []byte(strings.Repeat("flood ", 1<<16) + "\n")
		for range 64 {
			if _, err := os.Stderr.Write(line); err != nil {
				diagnostics.AddError("Not written", err.Error())
			}
		}
	case "panic":
		panic("the configuration asks for it")
	case "hang":
		<-ctx.Done()
		diagnostics.AddError("Stopped", ctx.Err().Error())
	case "half":
		return true
	default:
		diagnostics.AddAttributeError(path.Root("fail"), "Failed", "The configuration asks for it.")
	}
	return false
}

// known replaces unknown values by ones that say where they are.
func known(raw tftypes.Value) tftypes.Value {
	result, err := tftypes.Transform(raw, func(at *tftypes.AttributePath, value tftypes.Value) (tftypes.Value, error) {
		if value.IsKnown() {
			return value, nil
		}
		switch {
		case value.Type().Is(tftypes.String):
			last := at.Steps()[len(at.Steps())-1]
			return tftypes.NewValue(tftypes.String, fmt.Sprintf("computed %v", last)), nil
		case value.Type().Is(tftypes.Number):
			return tftypes.NewValue(tftypes.Number, big.NewFloat(1)), nil
		default:
			return tftypes.NewValue(value.Type(), nil), nil
		}
	})
	if err != nil {
		panic(err)
	}
	return result
}

func (t *thing) file(id string) string { return filepath.Join(t.folder, id) }

func (t *thing) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	fault(ctx, "plan", req.Config.Raw, &resp.Diagnostics)
	if req.Plan.Raw.IsNull() {
		fault(ctx, "destroy", req.State.Raw, &resp.Diagnostics)
		resp.Diagnostics.AddWarning("Deleted", "The object is deleted.")
	}
}

func (t *thing) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	half := fault(ctx, "create", req.Plan.Raw, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.State.Raw = known(req.Plan.Raw)
	if kind, _ := faultOf("create", req.Plan.Raw); kind == "lie" {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("size"), 99)...)
	}
	var name types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	id := "id-" + name.ValueString()
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, "made", []byte(`"by create"`))...)
	var secret types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("write_only"), &secret)...)
	if t.folder != "" {
		if err := os.WriteFile(t.file(id), []byte(secret.ValueString()), 0o600); err != nil {
			resp.Diagnostics.AddError("Not written", err.Error())
		}
	}
	if half {
		resp.Diagnostics.AddError("Half done", "The object exists.")
	}
}

func (t *thing) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	fault(ctx, "read", req.State.Raw, &resp.Diagnostics)
	var id types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if t.folder != "" {
		if _, err := os.Stat(t.file(id.ValueString())); os.IsNotExist(err) {
			resp.State.RemoveResource(ctx)
			return
		}
	}
	name := strings.TrimPrefix(id.ValueString(), "id-")
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

func (t *thing) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	half := fault(ctx, "update", req.Plan.Raw, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	made, diagnostics := req.Private.GetKey(ctx, "made")
	resp.Diagnostics.Append(diagnostics...)
	if made == nil {
		resp.Diagnostics.AddWarning("No private data", "The private data of the create are lost.")
	}
	resp.State.Raw = known(req.Plan.Raw)
	if half {
		resp.Diagnostics.AddError("Half done", "The object has changed.")
	}
}

func (t *thing) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	fault(ctx, "delete", req.State.Raw, &resp.Diagnostics)
	if resp.Diagnostics.HasError() || t.folder == "" {
		return
	}
	var id types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if err := os.Remove(t.file(id.ValueString())); err != nil && !os.IsNotExist(err) {
		resp.Diagnostics.AddError("Not deleted", err.Error())
	}
}

func (*thing) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), req, resp)
}

// UpgradeState reads version 0, where the name was a title.
func (*thing) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: {StateUpgrader: func(ctx context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
		old := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"id": tftypes.String, "title": tftypes.String}}
		raw, err := req.RawState.UnmarshalWithOpts(old, tfprotov6.UnmarshalOpts{
			ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true},
		})
		var attributes map[string]tftypes.Value
		if err == nil {
			err = raw.As(&attributes)
		}
		var id, title string
		if err == nil {
			err = attributes["id"].As(&id)
		}
		if err == nil {
			err = attributes["title"].As(&title)
		}
		if err != nil {
			resp.Diagnostics.AddError("Not upgraded", err.Error())
			return
		}
		resp.State.Raw = absent(resp.State.Schema.Type().TerraformType(ctx))
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), title)...)
	}}}
}

// absent is an object with null attributes and without blocks.
func absent(of tftypes.Type) tftypes.Value {
	attributes := map[string]tftypes.Value{}
	for name, inner := range of.(tftypes.Object).AttributeTypes {
		if strings.HasSuffix(name, "_block") && !inner.Is(tftypes.Object{}) {
			attributes[name] = tftypes.NewValue(inner, []tftypes.Value{})
		} else {
			attributes[name] = tftypes.NewValue(inner, nil)
		}
	}
	return tftypes.NewValue(of, attributes)
}

// MoveState accepts types with a name, and an id unless it follows from the name.
func (*thing) MoveState(context.Context) []resource.StateMover {
	source := schema.Schema{Attributes: map[string]schema.Attribute{
		"id":   schema.StringAttribute{Computed: true},
		"name": schema.StringAttribute{Optional: true},
	}}
	return []resource.StateMover{{SourceSchema: &source, StateMover: func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
		if req.SourceTypeName != "other_thing" && req.SourceTypeName != "frame_named" || req.SourceState == nil {
			return
		}
		var id, name types.String
		resp.Diagnostics.Append(req.SourceState.GetAttribute(ctx, path.Root("id"), &id)...)
		resp.Diagnostics.Append(req.SourceState.GetAttribute(ctx, path.Root("name"), &name)...)
		if id.IsNull() {
			id = types.StringValue("id-" + name.ValueString())
		}
		resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root("id"), id)...)
		resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root("name"), name)...)
	}}}
}

// named is a resource with an identity.
type named struct{}

func (*named) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "frame_named"
}

func (*named) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"name": schema.StringAttribute{Required: true},
		"note": schema.StringAttribute{Optional: true},
	}}
}

func (*named) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Version: 1, Attributes: map[string]identityschema.Attribute{
		"name": identityschema.StringAttribute{RequiredForImport: true},
	}}
}

func (*named) UpgradeIdentity(context.Context) map[int64]resource.IdentityUpgrader {
	old := identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"title": identityschema.StringAttribute{RequiredForImport: true},
	}}
	return map[int64]resource.IdentityUpgrader{0: {PriorSchema: &old, IdentityUpgrader: func(ctx context.Context, req resource.UpgradeIdentityRequest, resp *resource.UpgradeIdentityResponse) {
		var title types.String
		resp.Diagnostics.Append(req.Identity.GetAttribute(ctx, path.Root("title"), &title)...)
		resp.Identity.Raw = absent(resp.Identity.Schema.Type().TerraformType(ctx))
		resp.Diagnostics.Append(resp.Identity.SetAttribute(ctx, path.Root("name"), title)...)
	}}}
}

func (*named) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.State.Raw = req.Plan.Raw
	var name types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	resp.Diagnostics.Append(resp.Identity.SetAttribute(ctx, path.Root("name"), name)...)
}

func (*named) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var name types.String
	resp.Diagnostics.Append(req.Identity.GetAttribute(ctx, path.Root("name"), &name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

func (*named) Update(_ context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
}

func (*named) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}

func (*named) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughWithIdentity(ctx, path.Root("name"), path.Root("name"), req, resp)
}
