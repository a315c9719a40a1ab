package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// bed is the control plane with both servers behind it.
type bed struct {
	pki       string
	apiserver string
	reference string
	subject   string
	// stoa is where stoa-apiserver is, if it is there.
	stoa string
	etcd string
	// log is where the subject keeps its objects: memory, local or etcd.
	log string
	// What each records of requests.
	referenceLog, subjectLog string

	kube    *kubernetes.Clientset
	dynamic dynamic.Interface
	// run makes names unique, so that a test bed can be used again.
	run string
	// token is a service account's; it may read flunders and nothing else.
	token string

	mu      sync.Mutex
	clients map[string]*http.Client
}

func openBed(folder, envFile string) (*bed, error) {
	env, err := readEnv(envFile)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(folder, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 1000
	b := &bed{
		pki:          filepath.Join(folder, "pki"),
		apiserver:    env["APISERVER_URL"],
		reference:    env["WARDLE_REFERENCE_URL"],
		subject:      env["WARDLE_SUBJECT_URL"],
		stoa:         env["STOA_URL"],
		etcd:         env["ETCD_URL"],
		log:          env["WARDLE_SUBJECT_LOG"],
		referenceLog: env["WARDLE_REFERENCE_AUDIT_LOG"],
		subjectLog:   env["WARDLE_SUBJECT_AUDIT_LOG"],
		run:          "c" + strconv.FormatInt(time.Now().UnixMilli()%1e9, 36),
		clients:      map[string]*http.Client{},
	}
	if b.reference == "" || b.subject == "" {
		return nil, fmt.Errorf("the test bed has no wardle servers; hack/cluster up --wardle starts them")
	}
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if b.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	return b, b.prepare()
}

func readEnv(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	env := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), "="); found {
			env[key] = value
		}
	}
	return env, lines.Err()
}

// prepare makes the namespace that most checks share, and a service account that may read flunders in it.
func (b *bed) prepare() error {
	ctx := context.Background()
	if err := b.namespace(b.run); err != nil {
		return err
	}
	accounts := b.kube.CoreV1().ServiceAccounts(b.run)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"wardle.example.com"}, Resources: []string{"flunders"}, Verbs: []string{"get", "list", "watch"},
		}},
	}
	if _, err := b.kube.RbacV1().Roles(b.run).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: b.run}},
	}
	if _, err := b.kube.RbacV1().RoleBindings(b.run).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	request, err := accounts.CreateToken(ctx, "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	b.token = request.Status.Token
	if err := b.defineTrawlers(ctx); err != nil {
		return err
	}
	return b.forget()
}

func (b *bed) namespace(name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := b.kube.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{})
	return err
}

// client is an HTTP client that shows the certificate called identity, or none.
func (b *bed) client(identity string, http1 bool) (*http.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprint(identity, http1)
	if client := b.clients[key]; client != nil {
		return client, nil
	}
	config, err := b.tls(identity)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: !http1, DisableCompression: true}
	if http1 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	b.clients[key] = client
	return client, nil
}

func (b *bed) tls(identity string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	authorities := []string{"ca.crt", "wardle-ca.crt", "etcd-ca.crt"}
	if b.stoa != "" {
		authorities = append(authorities, "stoa-ca.crt")
	}
	for _, name := range authorities {
		pem, err := os.ReadFile(filepath.Join(b.pki, name))
		if err != nil {
			return nil, err
		}
		roots.AppendCertsFromPEM(pem)
	}
	config := &tls.Config{RootCAs: roots}
	if identity != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(b.pki, identity+".crt"), filepath.Join(b.pki, identity+".key"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// lead makes the APIService lead to the server at url, and waits until it does.
func (b *bed) lead(url, name string) error {
	port, err := strconv.Atoi(url[strings.LastIndex(url, ":")+1:])
	if err != nil {
		return err
	}
	ctx := context.Background()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"service": map[string]any{"port": port}}})
	if err != nil {
		return err
	}
	services := b.dynamic.Resource(apiServices)
	if _, err = services.Patch(ctx, "v1alpha1.wardle.example.com", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	// A mark that only this server knows says that requests arrive there.
	mark := fmt.Sprintf("/apis/wardle.example.com/v1alpha1/fischers/%s-%s", b.run, name)
	client, err := b.client("admin", false)
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Fischer","metadata":{"name":"%s-%s"}}`, b.run, name)
	created, err := client.Post(url+"/apis/wardle.example.com/v1alpha1/fischers", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	created.Body.Close()
	if err := b.await(mark); err != nil {
		return fmt.Errorf("it does not lead to the %s: %w", name, err)
	}
	return nil
}

// The modes in which both are asked.
const (
	direct = "direct"
	front  = "front"
)

// runAll runs every check that the filter takes, in every mode.
func (b *bed) runAll(filter *regexp.Regexp, modes []string) ([]*result, error) {
	// Some are made in a loop over a map, in another order each time.
	slices.SortStableFunc(checks, func(a, b *check) int {
		return cmp.Or(strings.Compare(a.area, b.area), strings.Compare(a.name, b.name))
	})
	var results []*result
	for _, mode := range modes {
		var chosen []*result
		for _, check := range checks {
			if filter.MatchString(check.title()) && (check.mode == "" || check.mode == mode) {
				chosen = append(chosen, &result{check: check, mode: mode, number: len(results) + len(chosen)})
			}
		}
		transcripts := func(chosen []*result, name, url string) error {
			base, ahead := url, name
			if mode == front {
				base = b.apiserver
			} else if ahead = "reference"; name == "reference" {
				// The garbage collector is kept away from who is asked, by giving it the other one.
				ahead = "subject"
			}
			if err := b.lead(map[string]string{"reference": b.reference, "subject": b.subject}[ahead], ahead); err != nil {
				return err
			}
			return b.runChecks(chosen, name, base, mode)
		}
		both := func(chosen []*result) error {
			if err := transcripts(chosen, "reference", b.reference); err != nil {
				return err
			}
			return transcripts(chosen, "subject", b.subject)
		}
		if err := both(chosen); err != nil {
			return nil, err
		}
		// What only a busy machine made different, such as a health check that took too long, is asked once more.
		var again []*result
		for _, result := range chosen {
			if !result.equal() && result.allowed() == "" {
				result.number += secondNumber
				again = append(again, result)
			}
		}
		if len(again) > 0 {
			if err := both(again); err != nil {
				return nil, err
			}
		}
		results = append(results, chosen...)
	}
	return results, nil
}

// secondNumber keeps what a check makes when it is asked once more apart from what it made before.
const secondNumber = 100_000

// parallel is how many checks run at once: most of their time is spent waiting.
const parallel = 24

func (b *bed) runChecks(chosen []*result, name, base, mode string) error {
	run := func(result *result) {
		began := time.Now()
		transcript := b.runCheck(result, name, base, mode)
		if took := time.Since(began); took > 10*time.Second {
			fmt.Fprintf(os.Stderr, "%s took %.0f s with the %s\n", result.title(), took.Seconds(), name)
		}
		if name == "reference" {
			result.reference = transcript
		} else {
			result.subject = transcript
		}
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, result := range chosen {
		if result.check.alone {
			continue
		}
		group.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; group.Done() }()
			run(result)
		}()
	}
	group.Wait()
	for _, result := range chosen {
		if result.check.alone {
			run(result)
		}
	}
	return nil
}
