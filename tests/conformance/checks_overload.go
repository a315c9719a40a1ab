package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// crowd is a user whose requests the reference refuses once some are worked on: priority and fairness gives it few seats
// and no queue. The subject refuses everybody's once 200 that change something are.
func (b *bed) crowd() string { return b.run + "-crowd" }

// most is more requests than either works on at once.
const most = 260

// seat gives the crowd few seats, and returns the uid of what says so.
func (s *session) seat() (string, error) {
	ctx := context.Background()
	flow := s.bed.kube.FlowcontrolV1()
	name := s.bed.crowd()
	shares := int32(1)
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares,
				BorrowingLimitPercent:    new(int32),
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	// The other server's turn finds both made.
	_, _ = flow.PriorityLevelConfigurations().Create(ctx, level, metav1.CreateOptions{})
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         50,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"create"}, APIGroups: []string{"wardle.example.com"}, Resources: []string{"*"}, Namespaces: []string{"*"},
				}},
			}},
		},
	}
	_, _ = flow.FlowSchemas().Create(ctx, schema, metav1.CreateOptions{})
	made, err := flow.FlowSchemas().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(made.UID), nil
}

// held is a request whose body does not end until it is let go.
type held struct {
	body   *io.PipeWriter
	answer chan *answer
}

// hold begins to create a flunder as somebody of the crowd.
func (s *session) hold(client *http.Client, name string) *held {
	reader, writer := io.Pipe()
	h := &held{body: writer, answer: make(chan *answer, 1)}
	request, err := http.NewRequest("POST", s.base+s.flunders(), reader)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Impersonate-User", s.bed.crowd())
	go func() {
		response, err := client.Do(request)
		if err != nil {
			h.answer <- &answer{body: []byte(err.Error())}
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		h.answer <- &answer{code: response.StatusCode, header: response.Header, body: body}
	}()
	go func() { _, _ = writer.Write(bytes.TrimSuffix(encode(object(name)), []byte("}"))) }()
	return h
}

// letGo ends the request's body and returns its answer, or nil when none comes.
func (h *held) letGo() *answer {
	_, _ = io.WriteString(h.body, "}")
	h.body.Close()
	select {
	case a := <-h.answer:
		return a
	case <-time.After(30 * time.Second):
		return nil
	}
}

// answered is the first request that is answered before its body has ended, by its place.
func answered(all []*held) map[int]*answer {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for i, h := range all {
			select {
			case a := <-h.answer:
				return map[int]*answer{i: a}
			default:
			}
		}
	}
	return nil
}

// More requests at once than a server takes.
func init() {
	addAlone("overload", "of requests that change something", func(s *session) {
		s.allow(s.bed.crowd(), "create", "get")
		uid, err := s.seat()
		if err != nil {
			panic(err)
		}
		for deadline := time.Now().Add(30 * time.Second); !s.subject && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			a := s.do("POST", s.flunders()+"?dryRun=All", object("probe"), quiet, header("Impersonate-User", s.bed.crowd()))
			if a.header.Get("X-Kubernetes-Pf-Flowschema-Uid") == uid && a.code == http.StatusCreated {
				break
			}
		}
		config, err := s.bed.tls("admin")
		if err != nil {
			panic(err)
		}
		// Over HTTP/1.1, the reference answers nothing before a body has ended.
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		var all []*held
		for i := range most {
			all = append(all, s.hold(client, fmt.Sprintf("n%d", i)))
		}
		for i, refused := range answered(all) {
			s.say("refused: %d%s %s", refused.code, headers(refused.header), strings.TrimSpace(string(refused.body)))
			all = append(all[:i], all[i+1:]...)
			break
		}
		s.do("GET", s.flunder("none"), nil, header("Impersonate-User", s.bed.crowd()), unshownHeader("Impersonate-User"))
		s.do("POST", s.flunders()+"?dryRun=All", object("master"), brief)
		codes := map[int]bool{}
		for _, h := range all {
			if a := h.letGo(); a != nil {
				codes[a.code] = true
			}
		}
		s.say("the others: %v", codes)
		s.do("POST", s.flunders()+"?dryRun=All", object("after"), brief, header("Impersonate-User", s.bed.crowd()), unshownHeader("Impersonate-User"))
	})
}
