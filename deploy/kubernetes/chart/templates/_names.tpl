{{- define "kvorum.selector" -}}
app.kubernetes.io/name: kvorum
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvorum.labels" -}}
{{ include "kvorum.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The founders' addresses. `.svc` is completed by the pods' search list, whatever the cluster's domain. */}}
{{- define "kvorum.join" -}}
{{- $addresses := list }}
{{- range .Values.founders }}
  {{- if ge (int .) (int $.Values.replicas) }}
    {{- fail (printf "founders names pod %d, but there are %d replicas: scale in no further than that" (int .) (int $.Values.replicas)) }}
  {{- end }}
  {{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:7600" $.Release.Name (int .) $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- join "," $addresses }}
{{- end }}

{{- define "kvorum.ports" -}}
- {name: native, port: 7600, targetPort: native}
- {name: https, port: 7602, targetPort: https}
- {name: sql, port: 7603, targetPort: sql}
{{- end }}
