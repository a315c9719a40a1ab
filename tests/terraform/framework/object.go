package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// object is a resource whose objects exist as those of a cloud do: each is a file of the provider's folder, with its
// value. Each create makes another one, whose id the provider chooses.
//
// The file fault in the folder ends the process once, as a crash does: ACTION:MOMENT, where ACTION is create, update
// or delete, and MOMENT is before or after the change.
type object struct{ folder string }

func (*object) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "frame_object"
}

func (o *object) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	o.folder, _ = req.ProviderData.(string)
}

func (*object) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id":    schema.StringAttribute{Computed: true, PlanModifiers: keep},
		"name":  schema.StringAttribute{Required: true, PlanModifiers: replace},
		"value": schema.StringAttribute{Required: true},
	}}
}

func (o *object) crash(moment string) {
	file := filepath.Join(o.folder, "fault")
	if asked, err := os.ReadFile(file); err == nil && string(asked) == moment && os.Remove(file) == nil {
		os.Exit(1)
	}
}

func (o *object) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var name, value types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("value"), &value)...)
	o.crash("create:before")
	file, err := os.CreateTemp(o.folder, name.ValueString()+".*")
	if err == nil {
		_, err = file.WriteString(value.ValueString())
	}
	if err != nil {
		resp.Diagnostics.AddError("Not created", err.Error())
		return
	}
	file.Close()
	o.crash("create:after")
	resp.State.Raw = req.Plan.Raw
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), filepath.Base(file.Name()))...)
}

func (o *object) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var id types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	value, err := os.ReadFile(filepath.Join(o.folder, id.ValueString()))
	if os.IsNotExist(err) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("Not read", err.Error())
		return
	}
	name, _, _ := strings.Cut(id.ValueString(), ".")
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("value"), string(value))...)
}

func (o *object) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var id, value types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("value"), &value)...)
	o.crash("update:before")
	file, err := os.OpenFile(filepath.Join(o.folder, id.ValueString()), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = file.WriteString(value.ValueString())
	}
	if err != nil {
		resp.Diagnostics.AddError("Not updated", err.Error())
		return
	}
	file.Close()
	o.crash("update:after")
	resp.State.Raw = req.Plan.Raw
}

func (o *object) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var id types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	o.crash("delete:before")
	if err := os.Remove(filepath.Join(o.folder, id.ValueString())); err != nil {
		resp.Diagnostics.AddError("Not deleted", err.Error())
		return
	}
	o.crash("delete:after")
}

func (*object) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), req, resp)
}
