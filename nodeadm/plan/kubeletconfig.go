package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/ownership"
	"github.com/eks-bootstrap/nodeadm/internal/suggest"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/facts"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// planKubeletConfig plans the KubeletConfiguration and returns it. Over
// nodeadm's defaults stands what the image has set (user data edits the file
// before calling bootstrap.sh, images ship one), over that what follows from
// the instance, and on top the user's own KubeletConfiguration. What a hand has
// changed since the last run is above all of it, unless conflicts are forced.
func (b *builder) planKubeletConfig() (map[string]any, error) {
	live, err := decodeJSON(b.facts.Host.Live[layout.KubeletConfig])
	if err == nil && !b.force {
		if err := b.checkLive(live); err != nil {
			return nil, err
		}
	}
	if err := b.checkUserFields(); err != nil {
		return nil, err
	}
	doc, err := b.mergeKubeletConfig()
	if err != nil {
		return nil, err
	}
	owner, err := b.ownersOf(layout.KubeletConfig)
	if err != nil {
		return nil, err
	}
	if err := b.checkOthers(doc, owner); err != nil {
		return nil, err
	}
	// Memory is reserved for the number of pods that kubelet will really take.
	otherMaxPods := b.othersMaxPods(doc, owner("maxPods"))
	if b.left = b.clashes(doc, owner); otherMaxPods || len(b.left) > 0 {
		b.plan.Files = slices.DeleteFunc(b.plan.Files, func(f File) bool { return f.Path == layout.KubeletConfig })
		b.plan.Conflicts = slices.DeleteFunc(b.plan.Conflicts, func(c Conflict) bool { return c.Path == layout.KubeletConfig })
		if doc, err = b.mergeKubeletConfig(); err != nil {
			return nil, err
		}
		if owner, err = b.ownersOf(layout.KubeletConfig); err != nil {
			return nil, err
		}
	}
	b.origins(doc, owner)
	return doc, nil
}

// wantedKubeletConfig is the document as nodeadm and the user want it, as it
// reads from a file.
func (b *builder) wantedKubeletConfig() (map[string]any, error) {
	wanted := map[string]any{}
	for _, layer := range []map[string]any{b.kubeletDefaults(), b.kubeletSettings(), b.config.Kubelet.Config} {
		ownership.Overlay(wanted, layer)
	}
	text, err := indentJSON(wanted)
	if err != nil {
		return nil, err
	}
	return decodeJSON([]byte(text)) // addresses become text
}

func (b *builder) mergeKubeletConfig() (map[string]any, error) {
	known, err := b.wantedKubeletConfig()
	if err != nil {
		return nil, err
	}
	text, err := indentJSON(known)
	if err != nil {
		return nil, err
	}
	defaults, settings, user := b.kubeletDefaults(), b.kubeletSettings(), b.config.Kubelet.Config
	intents := []ownership.Intent{
		{Manager: Agent, Fields: within(known, without(defaults, settings)), Yields: true},
		{Manager: Agent, Fields: within(known, settings)},
	}
	return b.want(wish{path: layout.KubeletConfig, mode: 0o644, text: text, keepsImage: true,
		intents: append(intents, b.byManager("spec.kubelet.config", user)...)})
}

// origins notes where each field of the document comes from: who set it and,
// where that is nodeadm, what it was worked out from.
func (b *builder) origins(doc map[string]any, ownerOf func(...string) string) {
	settings := b.kubeletSettings()
	for _, path := range leafPaths(doc, "") {
		keys := strings.Split(path, "\x00")
		from := ""
		switch owner := ownerOf(keys...); {
		case owner == ownership.Hand:
			from = "a hand, after the last run"
		case owner == ownership.Image:
			from = "kubelet-config.json as it stood on the node"
		case has(b.config.Kubelet.Config, keys):
			from = b.config.Origin("spec.kubelet.config." + strings.Join(keys, "."))
		case has(settings, keys):
			from = b.settingOrigin(keys[0])
		default:
			from = fmt.Sprintf("default for kubelet %s", b.facts.Host.Kubelet)
		}
		value, _ := json.Marshal(at(doc, keys)) // it was JSON before
		b.plan.Origins = append(b.plan.Origins, Origin{strings.Join(keys, "."), string(value), from})
	}
}

// othersMaxPods takes note of a max pods that the image or a hand has set and
// that stays. It tells whether that is another number than was planned.
func (b *builder) othersMaxPods(doc map[string]any, owner string) bool {
	n, isNumber := doc["maxPods"].(int64)
	if _, flag := b.config.Kubelet.Flag("max-pods"); flag || !isNumber || int(n) == b.plan.MaxPods.Effective {
		return false
	}
	switch owner {
	case ownership.Hand:
		b.plan.MaxPods.Source = "kubelet-config.json, changed by hand"
	case ownership.Image:
		b.plan.MaxPods.Source = "kubelet-config.json as it stood"
	default:
		return false
	}
	b.plan.MaxPods.Effective = int(n)
	return true
}

// clashes are the fields of nodeadm's own that kubelet would not start with
// beside what others have set; those go before.
func (b *builder) clashes(doc map[string]any, owner func(...string) string) (fields []string) {
	others := func(field string) bool { return doc[field] != nil && owner(field) != Agent }
	priorities, _ := doc["shutdownGracePeriodByPodPriority"].([]any)
	switch {
	case len(priorities) > 0, !b.gateOn(doc, "GracefulNodeShutdown"):
		fields = append(fields, "shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
	case others("shutdownGracePeriod") && !others("shutdownGracePeriodCriticalPods"):
		text, _ := doc["shutdownGracePeriod"].(string)
		if all, err := time.ParseDuration(text); err != nil || all < shutdownCriticalPods { // the part is more than all
			fields = append(fields, "shutdownGracePeriodCriticalPods")
		}
	}
	if !b.gateOn(doc, "RotateKubeletServerCertificate") {
		fields = append(fields, "serverTLSBootstrap")
	}
	_, flag := b.config.Kubelet.Flag("reserved-cpus")
	if cpus, _ := doc["reservedSystemCPUs"].(string); flag || cpus != "" {
		fields = append(fields, "kubeReservedCgroup", "systemReservedCgroup")
	}
	return slices.DeleteFunc(fields, func(field string) bool { return doc[field] == nil || others(field) })
}

// gateOn tells whether a feature is on that is beta, and on by default, in every
// kubelet that has it.
func (b *builder) gateOn(doc map[string]any, name string) bool {
	gates, _ := doc["featureGates"].(map[string]any)
	flags := b.config.Kubelet.FeatureGates()
	for _, gate := range []string{name, "AllBeta"} {
		if on, given := flags[gate]; given {
			return on
		}
		if on, given := gates[gate]; given {
			return on == true // null is off
		}
	}
	return true
}

// checkOthers refuses what the image or a hand has written into the document,
// and kubelet would end over.
func (b *builder) checkOthers(doc map[string]any, owner func(...string) string) error {
	var errs []error
	isTheirs := func(keys ...string) bool {
		return slices.Contains([]string{ownership.Image, ownership.Hand}, owner(keys...))
	}
	gates, _ := doc["featureGates"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if isTheirs("featureGates", name) {
			errs = append(errs, b.checkGate(layout.KubeletConfig+": featureGates."+name, name, gates[name]))
		}
	}
	if isTheirs("runOnce") {
		errs = append(errs, checkRunOnce(layout.KubeletConfig, doc))
	}
	return errors.Join(errs...)
}

func checkRunOnce(where string, doc map[string]any) error {
	if doc["runOnce"] != true {
		return nil
	}
	return fault.New(fault.Usage, "leave it out", "%s: runOnce: kubelet would end once its static pods run, and never join", where)
}

// ownersOf tells whose each field of a planned file is.
func (b *builder) ownersOf(path string) (func(...string) string, error) {
	for _, f := range b.plan.Files {
		if f.Path == path && f.State != nil {
			return f.State.Owners()
		}
	}
	return (&ownership.State{}).Owners()
}

// settingOrigin tells what a field that nodeadm decides follows from.
func (b *builder) settingOrigin(field string) string {
	switch field {
	case "maxPods":
		return b.plan.MaxPods.Source + ": " + b.plan.MaxPods.Arithmetic
	case "kubeReserved":
		return fmt.Sprintf("%d CPUs and %d pods", b.facts.Host.CPUs, min(b.plan.MaxPods.ENILimited, b.plan.MaxPods.Effective))
	case "clusterDNS":
		switch {
		case len(b.config.Cluster.DNSAddresses) > 0:
			return b.config.Origin("spec.cluster.dnsAddresses")
		case b.config.Cluster.ServiceCIDR.IsValid():
			return "tenth address of " + b.config.Origin("spec.cluster.cidr")
		}
		return "the cluster's service CIDR"
	case "providerID":
		return "instance metadata"
	}
	return "nodeadm"
}

// leafPaths are the paths of all values that are not maps with members, sorted,
// keys with NUL between them since keys may hold dots.
func leafPaths(doc map[string]any, prefix string) []string {
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if nested, isMap := doc[key].(map[string]any); isMap && len(nested) > 0 {
			paths = append(paths, leafPaths(nested, prefix+key+"\x00")...)
			continue
		}
		paths = append(paths, prefix+key)
	}
	return paths
}

func has(doc map[string]any, keys []string) bool {
	for i, key := range keys {
		value, found := doc[key]
		if !found || i == len(keys)-1 {
			return found
		}
		doc, _ = value.(map[string]any)
	}
	return false
}

func at(doc map[string]any, keys []string) any {
	for _, key := range keys[:len(keys)-1] {
		doc, _ = doc[key].(map[string]any)
	}
	return doc[keys[len(keys)-1]]
}

// CheckKubelet checks what the user says to kubelet against what the kubelet
// of a version knows.
func CheckKubelet(c config.Config, v kubelet.Version) error {
	b := &builder{config: c, facts: facts.Facts{Host: facts.Host{Kubelet: v}}}
	_, err := b.chooseRuntime()
	return errors.Join(err, b.checkUserFlags(), b.checkUserFields())
}

// checkUserGates checks the feature gates of the user's KubeletConfiguration.
func (b *builder) checkUserGates() (errs []error) {
	gates, _ := b.config.Kubelet.Config["featureGates"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		path := "spec.kubelet.config.featureGates." + name
		errs = append(errs, b.checkGate(b.config.Origin(path)+": "+path, name, gates[name]))
	}
	return errs
}

// checkGate refuses a feature gate that is known to have come or gone with
// another version, and one that may not be turned off any more: kubelet would
// end with a stack trace. Gates that the table does not have pass.
func (b *builder) checkGate(where, name string, value any) error {
	v := b.facts.Host.Kubelet
	row, known := kubelet.Find(kubelet.Gate, name)
	switch {
	case !known:
	case row.Until != 0 && v.Minor >= row.Until:
		return fault.New(fault.Usage, fmt.Sprintf("leave it out: it was removed in 1.%d", row.Until), "%s: kubelet %s has no such feature gate", where, v)
	case !kubelet.HasGate(v, name):
		return fault.New(fault.Usage, fmt.Sprintf("leave it out: it came with 1.%d", row.Since), "%s: kubelet %s has no such feature gate", where, v)
	case (value == false || value == nil) && kubelet.GateLocked(v, name): // null is off
		return fault.New(fault.Usage, "leave it out", "%s: kubelet %s does not let it be turned off", where, v)
	}
	return nil
}

// checkUserFields refuses fields that this kubelet does not have: it would
// start, and silently do without them.
func (b *builder) checkUserFields() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.config.Kubelet.Config)) {
		if kubelet.HasField(b.facts.Host.Kubelet, name) {
			continue
		}
		var known []string
		remedy := "leave it out"
		for row := range kubelet.Rows() {
			if row.Kind == kubelet.Field && kubelet.HasField(b.facts.Host.Kubelet, row.Name) {
				known = append(known, row.Name)
			}
			if row.Kind == kubelet.Field && row.Name == name {
				remedy = fmt.Sprintf("leave it out: it came with 1.%d", row.Since)
			}
		}
		if near := suggest.Nearest(name, known); near != "" && remedy == "leave it out" {
			remedy = "did you mean " + near + "?"
		}
		errs = append(errs, fault.New(fault.Usage, remedy, "%s: spec.kubelet.config.%s: kubelet %s has no such field", b.config.Origin("spec.kubelet.config."+name), name, b.facts.Host.Kubelet))
	}
	errs = append(append(errs, b.checkUserGates()...), b.checkSwapBehavior(), checkRunOnce(b.config.Origin("spec.kubelet.config.runOnce")+": spec.kubelet.config", b.config.Kubelet.Config))
	return errors.Join(append(errs, b.checkUserKinds("", b.config.Kubelet.Config, b.kubeletDefaults())...)...)
}

// checkUserKinds refuses values of another kind than the same field has in
// nodeadm's own document, such as text for a number: kubelet would not start.
func (b *builder) checkUserKinds(prefix string, user, own map[string]any) (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(user)) {
		path := prefix + key
		reference, known := own[key]
		if path == "maxPods" {
			reference, known = 0, true
		}
		if !known || user[key] == nil || kindOf(user[key]) == kindOf(reference) {
			nested, isMap := user[key].(map[string]any)
			if below, refIsMap := reference.(map[string]any); isMap && refIsMap {
				errs = append(errs, b.checkUserKinds(path+".", nested, below)...)
			}
			continue
		}
		text, _ := json.Marshal(user[key]) // it was JSON before
		errs = append(errs, fault.New(fault.Usage, "write "+kindOf(reference), "%s: spec.kubelet.config.%s must be %s, and is %s",
			b.config.Origin("spec.kubelet.config."+path), path, kindOf(reference), text))
	}
	return errs
}

// kindOf is the kind of a value in JSON, in words.
func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case bool:
		return "true or false"
	case string:
		return "text"
	}
	return "a number"
}

// decodeJSON reads an object, numbers exactly as they are written.
func decodeJSON(data []byte) (doc map[string]any, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, errors.New("it begins with a byte order mark, which JSON does not allow")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if dec.More() {
		return nil, errors.New("there is more in it than one JSON object")
	}
	return doc, nil
}

// checkLive refuses what stands in the document on the node where kubelet would
// not start with it: something in place of a group of fields, which would take
// all of the group away, security included, and values of another kind.
func (b *builder) checkLive(live map[string]any) error {
	reference, err := b.wantedKubeletConfig()
	if err != nil {
		return err
	}
	var left map[string]any // by the last run, with what the user may have wanted then
	if before := b.facts.Host.Before[layout.KubeletConfig]; before != nil {
		left = before.Document
	}
	errs := checkLiveKinds("", live, reference, left)
	gates, _ := live["featureGates"].(map[string]any)
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		if _, fits := gates[gate].(bool); !fits && gates[gate] != nil {
			errs = append(errs, badLive("featureGates."+gate, "true or false", gates[gate]))
		}
	}
	if kind, given := live["kind"]; given && kind != "KubeletConfiguration" {
		errs = append(errs, badLive("kind", "KubeletConfiguration", kind))
	}
	return errors.Join(errs...)
}

func checkLiveKinds(prefix string, live, reference, left map[string]any) (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(live)) {
		value, path := live[key], prefix+key
		known, isKnown := reference[key]
		group, isGroup := known.(map[string]any)
		nested, isMap := value.(map[string]any)
		was, wasThere := left[key]
		leftBelow, _ := was.(map[string]any)
		switch {
		case value == nil && wasThere && was == nil: // nodeadm itself has left it so
		case !isKnown || path == "featureGates" && isMap || path == "kind":
		case isGroup && isMap:
			errs = append(errs, checkLiveKinds(path+".", nested, group, leftBelow)...)
		case isGroup:
			errs = append(errs, badLive(path, "an object", value))
		case value == nil: // kubelet takes its default
		case kindOf(value) != kindOf(known):
			errs = append(errs, badLive(path, kindOf(known), value))
		case kindOf(value) == "a number" && isWhole(known) && !isWhole(value):
			errs = append(errs, badLive(path, "a whole number", value))
		}
	}
	return errs
}

func isWhole(number any) bool {
	_, err := strconv.ParseInt(fmt.Sprint(number), 10, 64)
	return err == nil
}

func badLive(path, want string, value any) error {
	text, _ := json.Marshal(value) // it was JSON before
	return fault.New(fault.Usage, "mend the file, or remove it to get the defaults; --force-conflicts replaces the value", "%s: %s must be %s, and is %s", layout.KubeletConfig, path, want, text)
}

// within is the part of doc at the fields that another document has.
func within(doc, fields map[string]any) map[string]any {
	part := map[string]any{}
	for key, field := range fields {
		value, found := doc[key]
		nested, isMap := value.(map[string]any)
		below, fieldIsMap := field.(map[string]any)
		switch {
		case isMap && fieldIsMap && len(below) > 0:
			part[key] = within(nested, below)
		case found:
			part[key] = value
		}
	}
	return part
}

// without is doc less the fields that another document has.
func without(doc, fields map[string]any) map[string]any {
	rest := map[string]any{}
	for key, value := range doc {
		field, found := fields[key]
		nested, isMap := value.(map[string]any)
		below, fieldIsMap := field.(map[string]any)
		switch {
		case isMap && fieldIsMap:
			if part := without(nested, below); len(part) > 0 {
				rest[key] = part
			}
		case !found:
			rest[key] = value
		}
	}
	return rest
}

// kubeletSettings are the fields that nodeadm decides on every run.
func (b *builder) kubeletSettings() map[string]any {
	v := b.facts.Host.Kubelet
	s := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"clusterDNS": b.cluster.dns,
		"evictionHard": map[string]any{
			"memory.available":  "100Mi",
			"nodefs.available":  "10%",
			"nodefs.inodesFree": "5%",
		},
		"kubeReserved": kubeReserved(b.facts.Host.CPUs, b.plan.MaxPods, b.config.Kubelet.ReservedPolicy),
	}
	if b.plan.MaxPods.Written {
		s["maxPods"] = b.plan.MaxPods.Planned
	}
	if v.Minor >= kubelet.ExternalCloudProvider {
		s["providerID"] = "aws:///" + b.facts.Instance.Zone + "/" + b.facts.Instance.ID
	}
	if b.runtimeName == "containerd" {
		s["cgroupDriver"] = "systemd"
		s["kubeReservedCgroup"] = "/runtime"
		s["systemReservedCgroup"] = "/system"
		if kubelet.HasField(v, "containerRuntimeEndpoint") {
			s["containerRuntimeEndpoint"] = layout.ContainerdSocket
		}
		if b.fastImagePull {
			s["imageServiceEndpoint"] = "unix://" + layout.SOCISocket
		}
	}
	b.leaveOut(s)
	return s
}

// kubeletDefaults are the fields that anybody may have set otherwise.
func (b *builder) kubeletDefaults() map[string]any {
	v := b.facts.Host.Kubelet
	gates := map[string]any{}
	for gate, since := range map[string]int{
		"RotateKubeletServerCertificate": kubelet.Oldest,
		"DynamicResourceAllocation":      33,
		"MutableCSINodeAllocatableCount": 34,
	} {
		if v.Minor >= since && kubelet.HasGate(v, gate) {
			gates[gate] = true
		}
	}
	d := map[string]any{
		"address": "0.0.0.0",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true, "cacheTTL": "2m0s"},
			"x509":      map[string]any{"clientCAFile": layout.CACertificate},
		},
		"authorization": map[string]any{
			"mode":    "Webhook",
			"webhook": map[string]any{"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
		},
		"cgroupDriver":          "cgroupfs",
		"cgroupRoot":            "/",
		"clusterDomain":         "cluster.local",
		"featureGates":          gates,
		"hairpinMode":           "hairpin-veth",
		"protectKernelDefaults": true,
		"readOnlyPort":          0,
		"serializeImagePulls":   false,
		"serverTLSBootstrap":    true,
		"tlsCipherSuites": []any{
			"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
			"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
			"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
			"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
			"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
			"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
			"TLS_RSA_WITH_AES_256_GCM_SHA384",
			"TLS_RSA_WITH_AES_128_GCM_SHA256",
		},
	}
	if kubelet.HasField(v, "logging.verbosity") {
		d["logging"] = map[string]any{"verbosity": 2}
	}
	// Pods with the node's resolver get a copy of that file, CoreDNS among them:
	// it would ask itself.
	if b.facts.Host.StubResolver {
		d["resolvConf"] = layout.UplinkResolvConf
	}
	// kubelet's own limits were too low for busy nodes until 1.27 raised them.
	if v.Minor >= 22 && v.Minor <= 26 {
		d["kubeAPIQPS"], d["kubeAPIBurst"] = 10, 20
	}
	if v.Minor >= 34 {
		d["shutdownGracePeriod"], d["shutdownGracePeriodCriticalPods"] = "2m30s", shutdownCriticalPods.String()
	}
	b.leaveOut(d)
	return d
}

// shutdownCriticalPods is the default of shutdownGracePeriodCriticalPods.
const shutdownCriticalPods = 30 * time.Second

func (b *builder) leaveOut(fields map[string]any) {
	for _, field := range b.left {
		delete(fields, field)
	}
}

// indentJSON writes a document with sorted keys, two spaces and a newline at
// the end; & < > stay as they are, since no browser reads this.
func indentJSON(doc any) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(doc)
	return out.String(), err
}
