{{/* Names. Namespaced ones begin with a letter, hold no dot and leave room for a suffix (63 characters). */}}
{{- define "slimscale.fullname" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := ternary $release (printf "slimscale-%s" $release) (hasPrefix "slimscale" $release) -}}
{{- if gt (len $name) 40 -}}
{{- printf "%s-%s" ($name | trunc 31 | trimSuffix "-") (sha256sum .Release.Name | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{/* Cluster-scoped names hold namespace and release, with a dot between: no two installs share one. */}}
{{- define "slimscale.clusterName" -}}
slimscale.{{ .Release.Namespace }}.{{ .Release.Name }}
{{- end }}

{{- define "slimscale.operatorName" -}}{{ include "slimscale.fullname" . }}-operator{{- end }}
{{- define "slimscale.webhookName" -}}{{ include "slimscale.fullname" . }}-webhook{{- end }}
{{- define "slimscale.webhookSecret" -}}{{ include "slimscale.fullname" . }}-webhook-tls{{- end }}

{{- define "slimscale.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "slimscale.operatorName" .) -}}
{{- end }}

{{- define "slimscale.selectorLabels" -}}
app.kubernetes.io/name: slimscale
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "slimscale.labels" -}}
{{ include "slimscale.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: slimscale
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | trimSuffix "." }}
{{- end }}

{{- define "slimscale.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Never the system's namespaces and never our own; of the others the watched ones. */}}
{{- define "slimscale.webhookNamespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.webhook.excludedNamespaces | uniq | toJson }}
  {{- with .Values.watchNamespaces }}
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{ toJson . }}
  {{- end }}
{{- end }}

{{/*
The CA that a webhook configuration trusts. The operator writes it there at run time, so what is
there already must survive an upgrade. Call with (dict "context" $ "kind" KIND).
*/}}
{{- define "slimscale.caBundle" -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" .kind "" (include "slimscale.clusterName" .context) -}}
{{- range ($found).webhooks -}}
{{- if .clientConfig.caBundle -}}
caBundle: {{ .clientConfig.caBundle }}
{{- break -}}
{{- end -}}
{{- end -}}
{{- end }}
