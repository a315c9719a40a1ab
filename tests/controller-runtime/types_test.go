package controllerruntime

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configVersion = schema.GroupVersion{Group: "config.stoa.dev", Version: "v1alpha1"}

// Stack is the type that a program written in Go has for the kind.
type Stack struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   StackSpec   `json:"spec"`
	Status StackStatus `json:"status,omitempty"`
}

type StackSpec struct {
	Description     string         `json:"description,omitempty"`
	Project         string         `json:"project"`
	StackName       string         `json:"stackName,omitempty"`
	Path            string         `json:"path,omitempty"`
	DesiredVersion  string         `json:"desiredVersion,omitempty"`
	Workspaces      []string       `json:"workspaces,omitempty"`
	Trigger         string         `json:"trigger,omitempty"`
	DriftInterval   string         `json:"driftInterval,omitempty"`
	Generator       *StackTemplate `json:"generator,omitempty"`
	RequireApproval bool           `json:"requireApproval,omitempty"`
	DeletionPolicy  string         `json:"deletionPolicy,omitempty"`
}

type StackTemplate struct {
	Type       string            `json:"type,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

type StackStatus struct {
	ObservedCommit string             `json:"observedCommit,omitempty"`
	Conditions     []metav1.Condition `json:"conditions,omitempty"`
}

// StackList is a list of them.
type StackList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Stack `json:"items"`
}

func (s *Stack) DeepCopyObject() runtime.Object     { return deepCopy(s) }
func (l *StackList) DeepCopyObject() runtime.Object { return deepCopy(l) }

// deepCopy is what generated code does field by field.
func deepCopy[T any](in *T) *T {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		panic(err)
	}
	return out
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(configVersion, &Stack{}, &StackList{})
	metav1.AddToGroupVersion(scheme, configVersion)
}
