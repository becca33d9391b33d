{{/* Fails when a value is given that nothing reads while its switch is off. */}}
{{- define "oncelog.requireSwitch" -}}
{{- if and .given (not .on) -}}
{{- fail (printf "%s is given and %s is false, so nothing would use it: which is meant? Set %s=true, or leave %s out." .value .switch .switch .value) -}}
{{- end -}}
{{- end }}

{{/* What must be in the cluster before the release. A pod waits for a Secret that is missing without a word in any log, so Helm's answer says it. */}}

{{/* Fails unless the Secret `name` has all `keys`; value: where the user named it; space: another namespace than the release's. */}}
{{- define "oncelog.requireSecret" -}}
{{- $space := default .root.Release.Namespace .space -}}
{{- $files := list -}}
{{- range .keys }}{{ $files = append $files (printf "--from-file=%s" .) }}{{ end -}}
{{- $make := printf "kubectl create secret generic %s --namespace %s %s (the chart's README.md says how these files are made)" .name $space (join " " $files) -}}
{{- $found := lookup "v1" "Secret" $space .name -}}
{{- if $found -}}
{{- range $key := .keys -}}
{{- if not (get ($found.data | default dict) $key) -}}
{{- fail (printf "%s is %s: that Secret in namespace %s has nothing under the key %s. Make it anew: %s" $.value $.name $space $key $make) -}}
{{- end -}}
{{- end -}}
{{- /* Every namespace has this one, and with it a Secret that is missing is told from a cluster that is not asked. */ -}}
{{- else if lookup "v1" "ConfigMap" $space "kube-root-ca.crt" -}}
{{- fail (printf "%s is %s: there is no such Secret in namespace %s. Make it first: %s" .value .name $space $make) -}}
{{- end -}}
{{- end }}

{{/* Fails when what is wanted needs a kind that the cluster does not know. Only one that was asked lists kinds beside versions. */}}
{{- define "oncelog.requireKind" -}}
{{- $known := .root.Capabilities.APIVersions -}}
{{- if and .wanted ($known.Has "apps/v1/StatefulSet") (not ($known.Has .kind)) -}}
{{- fail (printf "%s is true, and the cluster does not know %s: install %s first, or set it to false." .value .kind .of) -}}
{{- end -}}
{{- end }}
